"""The worked examples of CONTRIBUTING.md: every patch applies, every command succeeds, in the order of the page.

    contributing.py FOLDER    in a copy of the sources there, which is kept: a later run builds what changed
    contributing.py --here    in this checkout and its build/, and undoes it (git checkout of what was patched)
"""
import os, re, shutil, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def sh(where, command, quiet=True):
    p = subprocess.run(["bash", "-c", command], cwd=where, capture_output=True, text=True)
    if p.returncode:
        print(f"FAILED {command}: exit {p.returncode}\n{p.stdout[-3000:]}{p.stderr[-3000:]}")
        sys.exit(1)
    if not quiet:
        print(f"$ {command}\n{p.stdout[-600:]}", flush=True)


def copy(to):
    """Tracked files and those not ignored, newer ones only; the tests' environment by reference."""
    files = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).split("\n")[:-1]
    for f in files:
        source, there = f"{ROOT}/{f}", f"{to}/{f}"
        if not os.path.isfile(source):
            continue
        if not os.path.exists(there) or open(source, "rb").read() != open(there, "rb").read():
            os.makedirs(os.path.dirname(there), exist_ok=True)
            shutil.copy(source, there)
    os.makedirs(f"{to}/.cache", exist_ok=True)
    for name in "venv", "onnx-1.22.0":
        if os.path.exists(f"{ROOT}/.cache/{name}") and not os.path.exists(f"{to}/.cache/{name}"):
            os.symlink(os.path.realpath(f"{ROOT}/.cache/{name}"), f"{to}/.cache/{name}")
    sh(to, "cmake --preset release -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG= >/dev/null")  # builds in half the time


def hunks(patch):
    """(file, [lines of a hunk]) of a patch whose hunks have no numbers: what stands before, what is added."""
    for part in re.split(r"^--- .*\n", patch, flags=re.M)[1:]:
        name, *lines = part.splitlines()
        yield re.sub(r"^\+\+\+ b/", "", name), lines[1:]


def apply(where, patch):
    """Each hunk's lines without a sign stand once in the file; a hunk of a new file has none. Returns the files."""
    files = []
    for name, lines in hunks(patch):
        path = f"{where}/{name}"
        files.append(name)
        old = "".join(l[1:] + "\n" for l in lines if l[:1] == " ")
        new = "".join(l[1:] + "\n" for l in lines)
        if not old:
            assert not os.path.exists(path), f"{name} is there already"
            open(path, "w").write(new)
            continue
        text = open(path).read()
        if text.count(old) != 1:
            print(f"FAILED {name} has {text.count(old)} times:\n{old}")
            sys.exit(1)
        open(path, "w").write(text.replace(old, new))
    return files


def main():
    here = sys.argv[1] == "--here"
    where = ROOT if here else os.path.abspath(sys.argv[1])
    page = open(f"{ROOT}/CONTRIBUTING.md").read()
    blocks = re.findall(r"^```(diff|sh)\n(.*?)^```", page, re.M | re.S)
    assert sum(k == "diff" for k, _ in blocks) == 3 and sum(k == "sh" for k, _ in blocks) == 3, "three examples"
    if not here:
        os.makedirs(where, exist_ok=True)
        copy(where)
    before, made = {}, []
    try:
        for kind, text in blocks:
            if kind == "sh":
                for command in text.splitlines():
                    sh(where, command, quiet=False)
                continue
            for name, _ in hunks(text):
                path = f"{where}/{name}"
                if os.path.exists(path):
                    before.setdefault(path, open(path).read())
                else:
                    made.append(path)
            apply(where, text)
    finally:
        for path, text in before.items():
            open(path, "w").write(text)
        for path in made:
            if os.path.exists(path):
                os.remove(path)
    print("every patch applied, every command succeeded")


main()
