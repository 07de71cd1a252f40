"""Links of documents lead somewhere: to a file of the tree, and to a heading of it where they name one."""
import os, re, subprocess, sys

root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINK = re.compile(r"\]\(([^)\s#:]*)(?:#([^)\s]*))?\)")


def anchors(path):
    """What headings are called in links: small letters, no punctuation; the same name again is counted."""
    seen = {}
    with open(path, encoding="utf-8") as f:
        for heading in re.findall(r"^#+ (.*?)\s*$", f.read(), re.M):
            name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            n = seen[name] = seen.get(name, -1) + 1
            yield f"{name}-{n}" if n else name


def main():
    pages = subprocess.run(["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    links, bad = 0, []
    for page in pages:
        with open(f"{root}/{page}", encoding="utf-8") as f:
            found = LINK.findall(f.read())
        links += len(found)
        for file, heading in found:
            path = os.path.join(root, os.path.dirname(page), file) if file else f"{root}/{page}"
            if not os.path.exists(path) or heading and heading not in anchors(path):
                bad.append(f"{page}: {file}{'#' + heading if heading else ''} leads nowhere")
    print("\n".join(bad or [f"{links} links"]))
    return bool(bad) or links < 60


sys.exit(main())
