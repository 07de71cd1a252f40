"""What documents show is what happens: each command of their console blocks is typed as it stands, and each line that
they show of its output comes, in that order, numbers apart.

    documents.py BUILD_FOLDER SOURCE_FOLDER DOCUMENT ...
"""
import os, re, subprocess, sys, tempfile

build, source, documents = sys.argv[1], sys.argv[2], sys.argv[3:]
failures = 0


def commands(text):
    """(command, lines shown); lines that begin with "> " continue a command."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.S | re.M):
        command, shown = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, shown
                command, shown = line[2:], []
            elif line.startswith("> ") and not shown:
                command += "\n" + line[2:]
            else:
                shown.append(line)
        if command:
            yield command, shown


def plain(line):
    return re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", line).strip()


def missing(shown, out):
    """The first line shown that does not come."""
    at = 0
    for line in shown:
        while at < len(out) and plain(out[at]) != plain(line):
            at += 1
        if at == len(out):
            return line
        at += 1
    return None


def read(document):
    global failures
    count = 0
    for command, shown in commands(open(f"{source}/{document}").read()):
        p = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        gone = missing(shown, p.stdout.splitlines())
        count += 1
        if p.returncode or gone is not None:
            failures += 1
            print(f"FAILED {document}: {command}\n  exit {p.returncode}" + (f", does not say \"{gone}\"" if gone else "") +
                  ":\n" + p.stdout[-1500:])
    if not count:
        sys.exit(f"FAILED {document} shows no commands")
    print(f"{document}: {count} commands")


with tempfile.TemporaryDirectory() as d:
    # As graphc's folder looks, without leaving anything there.
    os.chdir(d)
    for name in os.listdir(source):
        if not name.startswith((".", "build")):
            os.symlink(f"{source}/{name}", name)
    os.symlink(build, "build")
    os.makedirs(".cache")
    os.symlink(f"{source}/.cache/venv", ".cache/venv")
    os.environ.pop("GRAPHC_THREADS", None)
    for document in documents:
        read(document)
print(f"{failures} failures")
sys.exit(failures != 0)
