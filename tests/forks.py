"""Many command lines of graphc without the start of many programs: see forks.c.

Each is a process of its own, with its own memory, files and exit status; only the work of the loader is shared.
"""
import atexit, os, shutil, signal, subprocess, tempfile, threading


def preload_of(program):
    """Beside the build's programs; others' command lines are started one by one."""
    path = os.path.join(os.path.dirname(os.path.abspath(program)), "..", "tests", "forks.so")
    return path if os.path.exists(path) else None


class Server:
    def __init__(self, program, preload):
        self.folder = tempfile.mkdtemp(prefix="forks")
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, "LD_PRELOAD": preload})

    def run(self, args, timeout, env):
        files = [f"{self.folder}/out", f"{self.folder}/err"]
        words = [*files, os.getcwd(), str(timeout), str(len(env)), *(f"{k}={v}" for k, v in env.items()), *args]
        text = b"".join(os.fsencode(w) + b"\0" for w in words)
        self.process.stdin.write(b"%d\n" % len(text) + text)
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        if status == -signal.SIGALRM:
            raise subprocess.TimeoutExpired(args, timeout)
        out, err = (open(f, encoding="utf-8", errors="replace").read() for f in files)
        return subprocess.CompletedProcess(args, status, out, err)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


mine, servers = threading.local(), []  # a thread's own, by program; all


def cores():
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def run(args, timeout=600, env=None):
    """As subprocess.run does with the output captured as text; the first of args is the program."""
    args, env = list(map(str, args)), {**os.environ, **(env or {})}
    preload = preload_of(args[0])
    if not preload:
        return subprocess.run(args, capture_output=True, encoding="utf-8", errors="replace", timeout=timeout, env=env)
    if not hasattr(mine, "server"):
        mine.server = {}
    if args[0] not in mine.server:
        mine.server[args[0]] = Server(args[0], preload)
        servers.append(mine.server[args[0]])
    return mine.server[args[0]].run(args, timeout, env)


@atexit.register
def close():
    while servers:
        servers.pop().close()
