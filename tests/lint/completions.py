"""What shells offer: in bash, zsh and fish, each verb's options are those of its help, verbs are completed, and so are lists of
targets. A shell that is not installed is left out: completions.py GRAPHC
"""
import os, pty, re, select, shutil, signal, subprocess, sys, tempfile, time

graphc = os.path.abspath(sys.argv[1])
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../frontend/driver/completions")
environment = {**os.environ, "PATH": f"{os.path.dirname(graphc)}:{os.environ['PATH']}", "TERM": "dumb", "LC_ALL": "C"}
failures = []


def said(*args):
    return subprocess.run([graphc, *args], capture_output=True, text=True, check=True).stdout


VERBS = ["compile"] + re.findall(r"^  graphc ([a-z]+) ", said("--help"), re.M)
VERBS = sorted({v for v in VERBS if v not in ("help", "version")})
OPTIONS = {v: set(re.findall(r"^  (?:-\w, )?(--[a-z0-9-]+)", said("help", v), re.M)) for v in VERBS}


def bash(line):
    words = line.split(" ")
    script = f'source {FOLDER}/graphc.bash; COMP_WORDS=({" ".join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _graphc; ' \
             'printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True).stdout.split()


def fish(line):
    script = f"source {FOLDER}/graphc.fish; complete -C '{line}'"
    out = subprocess.run(["fish", "--no-config", "-c", script], env=environment, capture_output=True, text=True).stdout
    return [entry.split("\t")[0] for entry in out.splitlines()]


class Terminal:
    """zsh at a terminal: what it lists when asked."""
    def __init__(self, folder):
        with open(f"{folder}/.zshrc", "w") as f:
            f.write(f"PROMPT='@@ '; fpath=({FOLDER} $fpath); autoload -U compinit; compinit -u -D\n"
                    "zstyle ':completion:*' verbose no; LISTMAX=9999; unsetopt zle_bracketed_paste; stty cols 160 rows 500\n"
                    "bindkey '^X' list-choices; bindkey '^G' kill-whole-line; unset zle_bracketed_paste\n")
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.execvpe("zsh", ["zsh", "-i"], {**environment, "ZDOTDIR": folder})
        self.read("@@ ", 30)

    def read(self, until, seconds):
        text, end = "", time.monotonic() + seconds
        while until not in text and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    break
        return text

    def ask(self, line, patience):
        os.write(self.fd, (line + "\x18").encode())
        text = self.quiet(patience)
        os.write(self.fd, b"\x07\n")
        self.read("@@ ", 10)
        return re.findall(r"[\w.,/-]+", text.replace(line, " "))

    def quiet(self, patience):
        """All up to the first so many seconds without a word."""
        text = self.read("\n", 20)
        while (more := self.read("\0", patience)):
            text += more
        return text

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def check(shell, ask):
    def expect(line, wanted, exactly=False):
        for patience in (0.2, 3):  # of a busy machine
            got = set(ask(line, patience))
            bad = exactly and got != wanted or not wanted <= got
            if not bad:
                break
        if bad:
            failures.append(f"{shell}: {line!r}: {' '.join(sorted(got - wanted)) if exactly else ''} offered, {' '.join(sorted(wanted - got))} missing")

    expect("graphc ver", {"verify"})
    expect("graphc help ", set(VERBS))
    for verb in VERBS:
        expect(f"graphc {verb} --", OPTIONS[verb], exactly=True)
    expect("graphc run --target cpu,sm", {"cpu,sm_90a", "cpu,sm_80"} if shell != "zsh" else {"sm_90a", "sm_80"})
    expect("graphc verify --precision ", {"f32", "tf32", "bf16", "f16"})


if "verify" not in VERBS or any("--help" not in o for o in OPTIONS.values()):
    sys.exit(f"no verbs in the help, or no options: {OPTIONS}")
check("bash", lambda line, patience: bash(line))
if shutil.which("fish"):
    check("fish", lambda line, patience: fish(line))
if shutil.which("zsh"):
    with tempfile.TemporaryDirectory() as folder:
        terminal = Terminal(folder)
        check("zsh", lambda line, patience: [w for w in terminal.ask(line, patience) if not line.endswith("--") or w.startswith("--")])
        terminal.close()
print("\n".join("FAILED " + f for f in failures) or
      "completions are the help's" + "".join(f"; no {s}" for s in ("fish", "zsh") if not shutil.which(s)))
sys.exit(bool(failures))
