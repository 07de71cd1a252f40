"""What scripts that try the command line on models of their own share: a folder to work in, commands that must not fail,
and a count of what was not as it should be; a Tool sets the working directory."""
import os, sys, tempfile
import forks


class Tool:
    def __init__(self, graphc):
        self.graphc, self.bad = os.path.abspath(graphc), 0
        os.chdir(tempfile.mkdtemp())

    def check(self, ok, what):
        if not ok:
            self.bad += 1
            print(f"FAILED: {what}")

    def run(self, *args):
        p = forks.run([self.graphc, *args], timeout=100)
        if p.returncode:
            sys.exit(f"FAILED {args}: exit {p.returncode}\n{p.stdout}{p.stderr}")
        return p.stdout


FAILED = []


def check(ok, what):
    """Of a script of checks: what is not so is said and counted."""
    if not ok:
        FAILED.append(what)
        print("FAILED", what)


def failed():
    return len(FAILED)


def try_cases(cases, bad, said):
    """Ends a script of cases (name, ...): each in one folder that is gone afterwards; `bad` of what is behind the name says what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, *rest in cases:
            wrong = bad(*rest)
            check(not wrong, f"{name}: {wrong if isinstance(wrong, str) else '; '.join(wrong)}")
        os.chdir(os.sep)
    print(f"{len(cases) - failed()} of {len(cases)} {said}")
    sys.exit(failed() != 0 or not cases)
