"""A decoder whose caches are states that grow in place gives the bits of the one that takes and gives them, run by run:
a prompt, then a token or a few at a time; what the states hold is compared, too, and is saved and loaded on the way.

    cache_state.py GRAPHC LIBGRAPHC
"""
import ctypes as C, os, subprocess, sys, tempfile
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "bench")]
import cases, graphc_run

NAME, LAYERS, ROOM, RUNS = "llama_small_kv", 4, 64, [5, 1, 1, 3, 1, 1]
PAIRS = [(f"past_key_values.{i}.{k}", f"present.{i}.{k}") for i in range(LAYERS) for k in ("key", "value")]
CODES = {"int64": (0, 64), "float32": (2, 32)}
graphc, lib = sys.argv[1], graphc_run.load(os.path.abspath(sys.argv[2]))
for f, args in {"graphc_state_shape": [C.c_void_p, C.c_uint32, C.c_void_p], "graphc_state_read": [C.c_void_p, C.c_uint32, C.c_void_p],
                "graphc_states_save": [C.c_void_p, C.c_char_p], "graphc_states_load": [C.c_void_p, C.c_char_p]}.items():
    getattr(lib, f).restype, getattr(lib, f).argtypes = C.c_int, args


def tensor(a):
    return graphc_run.Tensor(a.ctypes.data, 1, 0, graphc_run.DType(*CODES[str(a.dtype)], 1), a.ndim, (C.c_int64 * 12)(*a.shape))


class Cpu:
    def __init__(self, plan, weights):
        self.plan, self.s, why = C.c_void_p(), C.c_void_p(), C.create_string_buffer(512)
        o = graphc_run.Options(C.sizeof(graphc_run.Options), 1, 0, 0, None, 0, weights.encode())
        ok = not lib.graphc_plan_load(plan.encode(), C.byref(self.plan), why, 512)
        if not ok or lib.graphc_session_create(self.plan, C.byref(o), C.byref(self.s), why, 512):
            sys.exit(f"{plan}: {why.value.decode()}")

    def check(self, status):
        if status:
            sys.exit(f"status {status}: {lib.graphc_session_error(self.s).decode()}")

    def run(self, inputs):
        for i, a in enumerate(inputs):
            self.check(lib.graphc_bind_input(self.s, i, C.byref(tensor(a))))
        self.check(lib.graphc_run(self.s))

    def array(self, t):
        a = np.empty(list(t.shape[:t.rank]), np.float32)
        C.memmove(a.ctypes.data, t.data, a.nbytes) if a.size else None
        return a

    def output(self, i):
        t = graphc_run.Tensor()
        self.check(lib.graphc_output(self.s, i, C.byref(t)))
        return self.array(t)

    def state(self, i):
        t = graphc_run.Tensor()
        self.check(lib.graphc_state_shape(self.s, i, C.byref(t)))
        a = np.empty(list(t.shape[:t.rank]), np.float32)
        self.check(lib.graphc_state_read(self.s, i, C.byref(tensor(a))))
        return a


def main():
    folder, failures = os.path.abspath(cases.filled([NAME])), 0
    with tempfile.TemporaryDirectory() as d:
        size = ["--dim", "batch=1", "--dim", f"past=0..{ROOM}"]
        states = [x for a, b in PAIRS for x in ("--state", f"{a}={b}")]
        for plan, more in (("two", []), ("one", states)):
            subprocess.run([graphc, f"{folder}/{NAME}.onnx", "-o", f"{d}/{plan}.plan", *size, *more], check=True)
        two, one = Cpu(f"{d}/two.plan", folder), Cpu(f"{d}/one.plan", folder)
        past, cache = 0, [np.empty((1, 2, 0, 64), np.float32)] * len(PAIRS)
        for n, rows in enumerate(RUNS):
            ids = (np.arange(rows, dtype=np.int64)[None] * 11 + 37 * n) % 31000
            at = np.arange(past, past + rows, dtype=np.int64)[None]
            inputs = [ids, np.ones((1, past + rows), np.int64), at]
            two.run(inputs + cache), one.run(inputs)
            past, cache = past + rows, [two.output(1 + i) for i in range(len(PAIRS))]
            same = np.array_equal(two.output(0), one.output(0)) and all(
                np.array_equal(c, one.state(i)) for i, c in enumerate(cache))
            failures += not same
            print(f"{'ok  ' if same else 'FAIL'} run {n}: {rows} tokens, {past} in the cache")
            if n == 2:
                one.check(lib.graphc_states_save(one.s, f"{d}/cache.safetensors".encode()))
                one = Cpu(f"{d}/one.plan", folder)
                one.check(lib.graphc_states_load(one.s, f"{d}/cache.safetensors".encode()))
    sys.exit(failures != 0)


main()
