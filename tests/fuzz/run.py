"""Mutants of three small models, of their plans and of tensor files (see mutate.c).

    run.py GRAPHC MUTATE [NAME]     NAME: mlp, conv, attention or tensors; without: all
"""
import os, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models

graphc, mutate, only = sys.argv[1], sys.argv[2], sys.argv[3:]
with tempfile.TemporaryDirectory() as d:
    files = [m for m in models.write(d) if not only or os.path.basename(m)[:-5] in only]
    for m in files[:]:
        files.append(m[:-5] + ".plan")
        subprocess.run([graphc, m, "-o", files[-1]], check=True, stdout=subprocess.DEVNULL)
    if not only or "tensors" in only:
        files += models.write_tensors(d)
    sys.exit(subprocess.run([mutate, *files]).returncode)
