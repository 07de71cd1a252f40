"""conformance/suite.py or oracle/dtypes.py on a GPU in a minute: kernels are compiled by graphc, as there, and run in this
process, since a GPU context for each case takes longer than the case.

    suite.py libgraphc.so suite|dtypes ARGS...      their own arguments, with --device cuda

What this process cannot feed (types that NumPy has not, sequences, absent inputs) goes through the command line.
"""
import ctypes as C, os, sys, threading
import ml_dtypes, numpy as np, onnx
from onnx import numpy_helper

here = os.path.dirname(os.path.abspath(__file__))
sys.path[1:1] = [os.path.join(here, "..", d) for d in ("conformance", "oracle", "bench")]
sys.path.pop(0)  # this file is no module called suite
import graphc_run as gr
import suite

TYPES = {(4, 16): np.dtype(ml_dtypes.bfloat16), (6, 8): np.dtype(bool)}
TYPES |= {(code, bits): np.dtype(f"{kind}{bits}") for code, kind in enumerate(("int", "uint")) for bits in (8, 16, 32, 64)}
TYPES |= {(2, bits): np.dtype(f"float{bits}") for bits in (16, 32, 64)}


class Unfit(Exception):
    """For the command line to say, or to run."""


def need(fits, why):
    if not fits:
        raise Unfit(why)


def type_of(t):
    found = TYPES.get((t.code, t.bits))
    need(found, "another type")
    return found


def aligned(x):
    """A copy of x that starts at 64 bytes: (what keeps it, its address)."""
    room = np.zeros(x.nbytes + 64, np.uint8)
    at = -room.ctypes.data % 64
    room[at:at + x.nbytes] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    return room, room.ctypes.data + at


class Runner:
    def __init__(self, path):
        self.lib = gr.load(os.path.abspath(path))
        self.lib.graphc_output_host.restype = C.c_int
        self.lib.graphc_output_host.argtypes = [C.c_void_p, C.c_uint32, C.POINTER(gr.Tensor)]
        self.lock, self.model, self.kept, self.count = threading.Lock(), {}, [], {"here": 0, "command line": 0}
        self.cli = suite.call

    def session(self, plan):
        p, s, why = C.c_void_p(), C.c_void_p(), C.create_string_buffer(512)
        need(not self.lib.graphc_plan_load(plan.encode(), C.byref(p), why, len(why)), "plan")
        o = gr.Options(C.sizeof(gr.Options), gr.CUDA, 0, 1, None, 0, os.path.dirname(plan).encode())
        if self.lib.graphc_session_create(p, C.byref(o), C.byref(s), why, len(why)):
            self.lib.graphc_plan_destroy(p)
            raise Unfit("session")
        return p, s

    def bind(self, p, s, feeds):
        kept = []
        for i in range(self.lib.graphc_plan_inputs(p)):
            info = self.lib.graphc_plan_input(p, i)
            x = feeds.get(info.name.decode())
            need(x is not None and x.dtype == type_of(info.dtype), "input")
            room, at = aligned(x)
            kept.append(room)
            b = gr.Tensor(at, 1, 0, info.dtype, x.ndim, (C.c_int64 * gr.MAX_RANK)(*x.shape))
            need(not self.lib.graphc_bind_input(s, i, C.byref(b)), "bind")
        return kept

    def run(self, p, s, feeds, out):
        kept = self.bind(p, s, feeds)
        need(not self.lib.graphc_run(s) and not self.lib.graphc_sync(s), "run")
        del kept
        os.makedirs(out, exist_ok=True)
        for i in range(self.lib.graphc_plan_outputs(p)):
            t = gr.Tensor()
            need(not self.lib.graphc_output_host(s, i, C.byref(t)), "output")
            dtype, shape = type_of(t.dtype), [t.shape[k] for k in range(t.rank)]
            size = int(np.prod(shape)) * dtype.itemsize
            x = np.frombuffer(C.string_at(t.data, size) if size else b"", dtype).reshape(shape)
            name = suite.safe(self.lib.graphc_plan_output(p, i).name.decode())
            with open(f"{out}/{name}.pb", "wb") as f:
                f.write(numpy_helper.from_array(x).SerializeToString())

    def here(self, args):
        g = onnx.load(self.model[args[2]], load_external_data=False).graph
        need(all(v.type.WhichOneof("value") == "tensor_type" for v in [*g.input, *g.output]), "no tensors")
        given = dict(args[i + 1].split("=", 1) for i, a in enumerate(args) if a == "--input")
        feeds = {k: suite.load(path, None) for k, path in given.items()}
        with self.lock:
            if not self.kept:
                self.kept.append(self.session(args[2]))  # the context stays while a session is there
            p, s = self.session(args[2])
            try:
                self.run(p, s, feeds, args[args.index("--output-dir") + 1])
            finally:
                self.lib.graphc_session_destroy(s), self.lib.graphc_plan_destroy(p)

    def call(self, args, **env):
        """In place of suite.call."""
        if args[1] != "run":
            if "-o" in args:
                self.model[args[args.index("-o") + 1]] = args[1]
            return self.cli(args, **env)
        try:
            self.here(args)
        except Unfit:
            self.count["command line"] += 1
            return self.cli(args, **env)
        self.count["here"] += 1
        return 0, ""


def main():
    runner, what = Runner(sys.argv[1]), sys.argv[2]
    sys.argv[1:3] = []
    suite.call = runner.call
    if what == "dtypes":
        import dtypes
        status = dtypes.main()
    else:
        status = suite.main()
    print(", ".join(f"{n} {k}" for k, n in runner.count.items()))
    return status


if __name__ == "__main__":
    sys.exit(main())
