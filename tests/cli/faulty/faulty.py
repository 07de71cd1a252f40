"""Every file operation that a command makes fails once, and allocations one by one; a command is killed before each of its file
operations and at 50 points of its time.

    faulty.py GRAPHC FAULTY.so [--some | --all]      FAULTY.so: faulty.c. --all: every allocation, too, not a sample of them

A command whose call failed ends in a status and a message, or does without and gives the very same result. Whatever it was: what lay at
the output's place before is whole, or the new one is, and no other file is left in the folder or in that for temporary files. But one
that is killed while it replaces a file, between two system calls, leaves the whole new file under the name that it was about to take away
(runtime/base/file.h): Linux has no call that puts an unnamed file in the place of another.
"""
import os, shutil, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "fuzz"))
import models
import numpy as np
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
from tool import check, failed

graphc, faulty = map(os.path.abspath, sys.argv[1:3])
SAMPLE = 1 << 30 if "--all" in sys.argv else 8 if "--some" in sys.argv else 60  # allocations that are tried, of each command
KILLS = 10 if "--some" in sys.argv else 50
OLD = b"what was there"
HERE = ["--target", "native"]  # code for this machine alone: what can fail is the same, at a third of the time


def contents(folder):
    """Of every file below, by path."""
    return {os.path.relpath(os.path.join(d, f), folder): open(os.path.join(d, f), "rb").read() for d, _, fs in os.walk(folder) for f in fs}


class Trial:
    """A command in a folder of its own, with the files it is given and what was there before."""

    def __init__(self, name, args, given, before):
        self.name, self.args, self.given, self.before = name, args, given, before
        self.whole = None  # what an undisturbed run leaves

    def prepare(self):
        shutil.rmtree("w", ignore_errors=True), shutil.rmtree("tmp", ignore_errors=True)
        os.makedirs("w"), os.mkdir("tmp")
        for k, v in {**self.given, **self.before}.items():
            os.makedirs(os.path.dirname(os.path.join("w", k)), exist_ok=True)
            open(os.path.join("w", k), "wb").write(v)

    def start(self, **env):
        return subprocess.Popen([graphc, *self.args], cwd="w", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                                env={**os.environ, "TMPDIR": os.path.abspath("tmp"), "GRAPHC_THREADS": "2", **env})

    def look(self, what, killed=None):
        """Each file is as it was, or as an undisturbed run leaves it. Of a process that was killed, a number: how many files it was just replacing."""
        replacing = 0
        for k, v in contents("w").items():
            place = k.removesuffix(f".{killed}-0")
            if place != k and place in self.before and v == self.whole[place]:
                replacing += 1
                continue
            was, becomes = {**self.given, **self.before}.get(k), self.whole.get(k)
            check(v in (was, becomes), f"{what}: {k} is neither the old file nor the new one ({len(v)} bytes)")
        for k in {**self.given, **self.before}:
            check(os.path.exists(os.path.join("w", k)), f"{what}: {k} is gone")
        check(os.listdir("tmp") == [], f"{what}: left {os.listdir('tmp')}")
        return replacing

    def preloaded(self, kind, at):
        self.prepare()
        return self.start(LD_PRELOAD=faulty, FAULTY_KIND=kind, FAULTY_AT=str(at), FAULTY_SEEN=os.path.abspath("seen"))

    def fault(self, kind, at):
        """Whether the call came."""
        p = self.preloaded(kind, at)
        said = p.communicate()[1]
        what = f"{self.name}, {kind} {at}"
        check(0 <= p.returncode <= 7, f"{what}: ended by {p.returncode}: {said[-200:]}")
        check(p.returncode == 0 or "error" in said, f"{what}: exit {p.returncode} without a message")
        if p.returncode == 0:
            got = contents("w")
            lacks = [k for k in self.whole if k not in got and not k.startswith("c/")]  # of a cache entries may be missing
            check(not lacks and all(got[k] == v for k, v in self.whole.items() if k in got), f"{what}: exit 0, but not the whole result")
        self.look(what)
        came = os.path.exists("seen")
        if came:
            os.remove("seen")
        return came

    def count(self, kind):
        """How many calls of the kind there are: the least number that does not come."""
        low, high = 0, 64
        while self.fault(kind, high):
            low, high = high, 2 * high
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fault(kind, middle) else (low, middle)
        return high

    def run(self):
        self.prepare()
        p = self.start()
        said = p.communicate()[1]
        check(p.returncode == 0, f"{self.name}: {said}")
        self.whole = contents("w")
        self.files, allocations = self.count("files"), self.count("memory")
        for at in range(self.files):
            self.fault("files", at)
        step = max(1, allocations // SAMPLE)
        for at in range(0, allocations, step):
            self.fault("memory", at)
        print(f"{self.name}: {self.files} file operations, {len(range(0, allocations, step))} of {allocations} allocations")

    def kill(self):
        """Ended before each file operation, and from outside at points spread over the time it takes."""
        replacing = 0
        for at in range(self.files):
            p = self.preloaded("kill", at)
            p.communicate()
            what = f"{self.name}, killed before file operation {at}"
            check(p.returncode == -signal.SIGKILL, f"{what}: ended by {p.returncode}")
            replacing += self.look(what, p.pid)
        os.remove("seen")
        check(replacing <= len(self.before), f"{self.name}: killed before {replacing} of its file operations it leaves a file behind")
        start = time.monotonic()
        self.prepare()
        self.start().communicate()
        whole = time.monotonic() - start
        for k in range(KILLS):
            self.prepare()
            p = self.start()
            try:
                p.wait(whole * (k + 0.5) / KILLS)
            except subprocess.TimeoutExpired:
                p.send_signal(signal.SIGKILL)
            p.communicate()
            self.look(f"{self.name}, killed at {k}/{KILLS}", p.pid)
        p = self.start()
        p.communicate()
        check(p.returncode == 0 and {**contents("w"), **self.whole} == contents("w"), f"{self.name}: not the same after all that")
        print(f"{self.name}: killed before {self.files} file operations and at {KILLS} points")


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    os.mkdir("models")
    models.write("models")
    given = {f"{m}.onnx": open(f"models/{m}.onnx", "rb").read() for m in ("mlp", "attention")}
    subprocess.run([graphc, "models/mlp.onnx", "-o", "mlp.plan"], check=True, stdout=subprocess.DEVNULL)
    plan = {"mlp.plan": open("mlp.plan", "rb").read()}
    compile = Trial("compile", ["attention.onnx", "-o", "p.plan", *HERE], given, {"p.plan": OLD})
    cached = Trial("compile with a cache", ["mlp.onnx", "-o", "p.plan", "--cache", "c", *HERE], given, {"p.plan": OLD})
    loss = ["--loss", "mse(y, target)", "--batch", "2"]
    np.save("x.npy", np.ones((4, 5), np.float32)), np.save("t.npy", np.zeros((4, 3), np.float32))
    subprocess.run([graphc, "finetune", "models/mlp.onnx", *loss, "--lora", "r=2,targets=all-linear", "--data", "x=x.npy", "--data", "target=t.npy", "--steps", "1", "-o", "a"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    adapter = {f"a/{f}": open(f"a/{f}", "rb").read() for f in os.listdir("a") if f.startswith("adapter")}
    training = Trial("training plan", ["train", "mlp.onnx", *loss, "--plan-only", "-o", "p.plan", *HERE], given, {"p.plan": OLD})
    merge = Trial("merge", ["merge", "mlp.onnx", "--adapter", "a", "-o", "m.onnx"], {**given, **adapter}, {"m.onnx": OLD})
    trials = [compile, cached, Trial("run", ["run", "mlp.plan", "--dim", "batch=3", "--threads", "2", "--output-dir", "o"], plan, {"o/y.npy": OLD}),
              Trial("run with an adapter", ["run", "mlp.onnx", "--adapter", "a", "--dim", "batch=3", "--output-dir", "o"], {**given, **adapter}, {"o/y.npy": OLD}),
              training, merge, Trial("verify", ["verify", "mlp.onnx", "--dim", "batch=3"], given, {})]
    for t in trials:
        t.run()
    for t in (compile, cached, training, merge):
        t.kill()
print(f"{failed()} failures")
sys.exit(failed() != 0)
