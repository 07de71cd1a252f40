"""Compares all example models but the 1B ones."""
import os, subprocess, sys
import cases

names = sorted(f[:-5] for f in os.listdir(cases.MODELS) if f.endswith(".onnx") and "llama_1b" not in f)
compare = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare.py")
sys.exit(subprocess.run([sys.executable, compare, sys.argv[1], cases.filled(names), *names, *sys.argv[2:]]).returncode)
