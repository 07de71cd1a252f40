"""Eight threads run, load and free plans of the small models: soak.py GRAPHC SOAK SECONDS, of each. Meant for the presets asan and tsan."""
import os, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models

graphc, soak, seconds = sys.argv[1:]
bad = 0
with tempfile.TemporaryDirectory() as d:
    for path in models.write(d):
        plan = path[:-5] + ".plan"
        subprocess.run([graphc, path, "-o", plan], check=True, stdout=subprocess.DEVNULL)
        bad += subprocess.run([soak, plan, seconds]).returncode != 0
sys.exit(bad)
