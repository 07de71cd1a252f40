"""The libraries under valgrind: no access outside of memory, no branch on what was never written, nothing lost.

    valgrind.py BUILD_FOLDER SOURCE_FOLDER      skipped where valgrind is not installed

The installed examples are what is run, so that each call of the public headers is made at least once; then the command line
through a compile and a run. Valgrind has no AVX-512 and says so to programs: plans run their AVX2 code.
"""
import os, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build as models

build, source = sys.argv[1:3]
failures = 0
CHECK = ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible",
         "--show-leak-kinds=definite,indirect,possible"]
if not shutil.which("valgrind"):
    print("valgrind is not installed")
    sys.exit(77)


def call(*args):
    global failures
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode:
        failures += 1
        print(f"FAILED {' '.join(args)}: exit {p.returncode}\n{(p.stdout + p.stderr)[-3000:]}")
    return p.stdout


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    models.mlp("mlp.onnx")
    call(f"{build}/bin/graphc", "mlp.onnx", "-o", "mlp.plan")
    flags = ["-g", "-I", f"{build}/include", f"-L{build}/lib", f"-Wl,-rpath,{build}/lib"]
    for name, compiler, libs in (("threads.c", "cc", ["-lgraphc"]), ("run.cpp", "c++", ["-lgraphc"]), ("compile.c", "cc", ["-lgraphc_compile", "-lgraphc"])):
        call(compiler, f"{source}/models/examples/{name}", "-o", name.partition(".")[0], *flags, *libs, "-lpthread")
    call("cc", f"{source}/models/run_plan.c", "-o", "run_plan", *flags, f"{build}/lib/libgraphc.a", "-lpthread", "-ldl", "-lm")
    assert "equal results" in call(*CHECK, "./threads", "mlp.plan", "4", "20")
    assert "y [3, 50]" in call(*CHECK, "./run", "mlp.plan", "batch=3")
    assert "matmul" in call(*CHECK, "./compile", "mlp.onnx")
    call("valgrind", "-q", "--error-exitcode=9", "./run_plan", "mlp.plan", "batch=3")  # keeps its inputs to the end
    call("valgrind", "-q", "--error-exitcode=9", f"{build}/bin/graphc", "run", "mlp.onnx", "--output-dir", "out")
    call("valgrind", "-q", "--error-exitcode=9", f"{build}/bin/graphc", "explain", "mlp.plan")
    assert subprocess.run([*CHECK, "./run", "mlp.onnx"], capture_output=True).returncode == 1, "what is no plan"
print(f"{failures} failures")
sys.exit(failures != 0)
