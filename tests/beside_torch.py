"""A Python that has what a test compares with: this one, $GRAPHC_TORCH or .cache/torch/bin/python."""
import importlib.util, os, subprocess, sys


def go_on(modules, needed=True):
    """Goes on in a Python that has these modules. Where there is none the test is skipped, if it needs them."""
    if all(importlib.util.find_spec(m) for m in modules):
        return
    other = os.environ.get("GRAPHC_TORCH") or ".cache/torch/bin/python"
    there = os.path.exists(other) and os.path.abspath(other) != sys.executable
    if there and not subprocess.run([other, "-c", "import " + ", ".join(modules)], capture_output=True).returncode:
        os.execve(other, [other, *sys.argv], dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"))
    if needed:
        print(f"skipped: no Python with {', '.join(modules)} (GRAPHC_TORCH)")
        sys.exit(77)
