"""A compile that is stopped leaves no process and no file behind: stopped.py GRAPHC

The PTX assembler is one that never ends, so that the signal comes while it runs.
"""
import os, signal, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import build
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tool import check, failed

graphc = os.path.abspath(sys.argv[1])


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def until(fn, seconds=300):
    end = time.time() + seconds
    while not fn() and time.time() < end:
        time.sleep(0.02)
    return fn()


with tempfile.TemporaryDirectory() as d:
    os.chdir(d)
    build.mlp("mlp.onnx")
    os.mkdir("tmp")
    open("ptxas", "w").write(f"#!/bin/sh\ncase $1 in --version) echo 'release 13.0, V13.0.1'; exit;; esac\necho $$ > {d}/started\nexec sleep 600\n")
    os.chmod("ptxas", 0o755)
    env = dict(os.environ, GRAPHC_PTXAS=f"{d}/ptxas", TMPDIR=f"{d}/tmp")
    for sig in signal.SIGTERM, signal.SIGINT, signal.SIGKILL:
        p = subprocess.Popen([graphc, "mlp.onnx", "-o", "mlp.plan", "--target", "sm_90a"], env=env, stderr=subprocess.PIPE)
        started = until(lambda: os.path.exists("started") and open("started").read().strip())
        check(started, f"{sig.name}: the assembler was not started")
        if not started:
            p.kill()
            continue
        child = int(open("started").read())
        check(alive(child), f"{sig.name}: the assembler does not run")
        p.send_signal(sig)
        check(p.wait(300) != 0, f"{sig.name}: the status is 0")
        check(until(lambda: not alive(child)), f"{sig.name}: the assembler still runs")
        check(os.listdir("tmp") == [] and not os.path.exists("mlp.plan"), f"{sig.name}: left behind {os.listdir('tmp')} {os.listdir('.')}")
        check(p.stderr.read() == b"", f"{sig.name}: said something")
        if alive(child):
            os.kill(child, signal.SIGKILL)
        os.remove("started")
print(f"{failed()} failures")
sys.exit(failed() != 0)
