"""The wheel as its users meet it: installed into a fresh environment, and used there.

    package.py BUILD_FOLDER SOURCE_FOLDER VERSION

torch, jax and mypy are used where they are: GRAPHC_TORCH or .cache/torch names a Python with torch, GRAPHC_JAX one with jax,
GRAPHC_MYPY the program mypy.
"""
import glob, os, re, shutil, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import build as models

folder, source, version = sys.argv[1:4]
failures = 0


def call(*args, **more):
    global failures
    p = subprocess.run(args, capture_output=True, text=True, **more)
    if p.returncode:
        failures += 1
        print(f"FAILED {' '.join(args)}: exit {p.returncode}\n{(p.stdout + p.stderr)[-3000:]}")
    return p.stdout


def make_wheel():
    args = [sys.executable, f"{source}/runtime/python/wheel.py", version, f"{folder}/lib", f"{folder}/bin/graphc", "."]
    wheel = call(*args).strip()
    first = open(wheel, "rb").read()
    call(*args)
    if open(wheel, "rb").read() != first:
        sys.exit("FAILED two wheels of the same files differ")
    return wheel


def environment(python, wheel, name, see):
    """A fresh environment with the wheel alone; NumPy and what else is needed come from where python has them."""
    call(python, "-m", "venv", name)
    call(f"{name}/bin/pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    site = call(python, "-c", "import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))").strip()
    with open(glob.glob(f"{name}/lib/python*/site-packages")[0] + "/see.pth", "w") as f:
        f.write(site + "\n")
    return f"{name}/bin/{see}"


def example():
    """The README's ten lines."""
    text = open(f"{source}/runtime/python/README.md").read()
    code = re.search(r"```python\n(.*?)```", text, re.S).group(1)
    if len(code.strip().splitlines()) > 10:
        sys.exit("FAILED the example of runtime/python/README.md has more than ten lines")
    open("example.py", "w").write(code)


os.environ.pop("GRAPHC_LIBRARIES", None)
here = os.path.dirname(os.path.abspath(__file__))
with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    models.mlp("model.onnx")
    wheel = make_wheel()
    python = environment(sys.executable, wheel, "fresh", "python")
    example()
    print(call(python, "example.py"))
    call("fresh/bin/graphc", "model.onnx", "-o", "model.plan")
    call(python, "-m", "graphc", "inspect", "model.plan")
    print(call(python, f"{here}/use.py"))
    torch = os.environ.get("GRAPHC_TORCH") or f"{source}/.cache/torch/bin/python"
    if os.path.exists(torch):
        print(call(environment(torch, wheel, "torched", "python"), f"{here}/use_torch.py", env={**os.environ, "OMP_NUM_THREADS": "1"}))
    else:
        print("torch is not there: its tensors are not tried")
    jax = os.environ.get("GRAPHC_JAX")
    if jax:
        print(call(environment(jax, wheel, "jaxed", "python"), f"{here}/use_jax.py"))
    else:
        print("jax is not there: its arrays are not tried")
    mypy = os.environ.get("GRAPHC_MYPY") or shutil.which("mypy")
    if mypy:
        print(call(mypy, "--strict", "--cache-dir", f"{d}/mypy", f"{source}/runtime/python/graphc"))
    else:
        print("mypy is not there: types are not checked")
print(f"{failures} failures")
sys.exit(failures != 0)
