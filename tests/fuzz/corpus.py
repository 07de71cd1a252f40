"""Targets of libFuzzer without it: the small files that fuzzers start from, those under corpus/ that once crashed something, and some
mutants of each. Under the preset asan each is seen with its sanitizers.

    corpus.py GRAPHC FOLDER [FORMAT ...]      FOLDER: of the programs replay_FORMAT
"""
import os, subprocess, sys, tempfile

from seeds import FORMATS

HERE = os.path.dirname(os.path.abspath(__file__))
graphc, programs, formats = sys.argv[1], sys.argv[2], sys.argv[3:] or FORMATS
MUTANTS, bad = 100 if os.environ.get("GRAPHC_TEST_ALL") else 10, 0
for format in formats:
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([sys.executable, f"{HERE}/seeds.py", graphc, format, d], check=True)
        known = [p for p in [f"{HERE}/corpus/{format}"] if os.path.isdir(p)]
        mutants = MUTANTS * (40 if format == "plan" else 1)  # of plans many cost little
        p = subprocess.run([f"{programs}/replay_{format}", str(mutants), d, *known], capture_output=True, text=True, errors="replace")
        files = p.stdout.count("\n")
        print(f"{'FAIL' if p.returncode else 'ok':5}{format}: {files} files, {mutants} mutants of each")
        if p.returncode:
            bad += 1
            print(p.stdout.splitlines()[-1:], p.returncode, p.stderr[-2000:])
sys.exit(bad)
