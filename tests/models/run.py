"""Writes the weights of the example models (once, into .cache/models) and compares all but the 1B ones."""
import os, subprocess, sys

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
out = os.path.join(root, ".cache", "models")
names = sorted(f[:-5] for f in os.listdir(os.path.join(root, "models")) if f.endswith(".onnx") and "llama_1b" not in f)
os.makedirs(out, exist_ok=True)
for n in names:
    if not os.path.exists(f"{out}/{n}.onnx"):
        subprocess.run([sys.executable, f"{root}/models/fill.py", out, n], check=True)
sys.exit(subprocess.run([sys.executable, f"{here}/compare.py", sys.argv[1], out, *names, *sys.argv[2:]]).returncode)
