"""Pages in a real browser, for the tests that look at them. Without one (tests/setup browser) they are skipped."""
import html, json, os, re, shutil, subprocess, sys, tempfile
from tool import failed

browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def need():
    if not browser:
        print("skipped: there is no chromium")
        sys.exit(77)


def run(folder, *args):
    """Standard output and what the page's console said."""
    p = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
                        f"--user-data-dir={folder}/profile", "--virtual-time-budget=4000", *args],
                       capture_output=True, text=True, timeout=600)
    return p.stdout, [l for l in p.stderr.splitlines() if "CONSOLE" in l]


def probe(folder, text, script, width, *args):
    """Runs the script at the end of a copy of the page, in a window of that width; what it leaves as JSON in
    document.title, and what the console said. A window has a least width; nothing in the page asks for the window's, so
    the root can stand for it."""
    fit = f"document.documentElement.style.width = Math.min(innerWidth, {width}) + 'px';"
    with open(f"{folder}/probe.html", "w") as f:
        f.write(text.replace("</body>", f"<script>{{ {fit}\n{script} }}</script></body>"))
    out, said = run(folder, f"--window-size={width},900", *args, "--dump-dom", f"file://{folder}/probe.html")
    found = re.search(r"<title>(\{.*?)</title>", out, re.S)
    return (json.loads(html.unescape(found[1])) if found else None), said


def picture(folder, page, out, width, height, *args):
    return run(folder, f"--window-size={width},{height}", *args, f"--screenshot={out}", f"file://{page}")[1]


def try_pages(test):
    """Ends a script of checks: test(folder), in the folder that the command line names second, where all stays, or in one that
    is gone afterwards."""
    if len(sys.argv) > 2:
        os.makedirs(sys.argv[2], exist_ok=True)
        test(os.path.abspath(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            test(folder)
            os.chdir(os.sep)
    print(f"{failed()} failures")
    sys.exit(failed() != 0)
