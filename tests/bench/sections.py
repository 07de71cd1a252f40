"""A section of measured figures at the top of a file of `results/`, where the newest stands first."""


def add(path, heading, lines):
    with open(path, encoding="utf-8") as f:
        head, mark, rest = f.read().partition("\n## ")
    with open(path, "w", encoding="utf-8") as f:
        f.write(head.rstrip("\n") + f"\n\n## {heading}\n\n" + "\n".join(lines) + "\n" + mark + rest)
