#!/usr/bin/env python3
"""CHANGELOG.md from the files in changes/, one for each change: two changes never edit the same lines.

    scripts/changelog.py --check                      exit 1 and name each file that breaks a rule
    scripts/changelog.py --release VERSION DATE       make their section in CHANGELOG.md, and remove them
    scripts/changelog.py --release 0.2.0 2027-01-31

The rules: a file is named NAME.KIND.md, with lower-case letters, digits and hyphens in NAME and a KIND of
KINDS; its lines are those of CHANGELOG.md, an entry or several, of at most 150 characters; links start from
changes/. CHANGELOG.md has no entries below [Unreleased]. tests/build/changelog_test.py checks them, too.
"""
import datetime
import pathlib
import re
import sys

# In the order in which a section has them.
KINDS = {"added": "Added", "changed": "Changed", "removed": "Removed", "fixed": "Fixed"}
NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(KINDS)})\.md")
LONGEST = 150
UNRELEASED = re.compile(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PROJECT_VERSION = re.compile(r"project\(headroom VERSION (\S+)")


def fragments(root):
    return sorted(file for file in (root / "changes").iterdir() if file.name != "README.md")


def faults_of_lines(where, lines):
    for number, line in enumerate(lines, 1):
        if len(line) > LONGEST:
            yield f"{where}:{number}: {len(line)} characters; break the line before {LONGEST + 1}"
        if not re.match(r"- \S" if number == 1 else r"(- |  +)\S", line):
            yield (f"{where}:{number}: expected an entry that begins with '- ', or two blanks or more before its "
                   f"next line, received '{line}'")


def faults(root):
    for file in fragments(root):
        where, name = f"changes/{file.name}", NAME.fullmatch(file.name)
        if not name:
            yield f"{where}: expected NAME.KIND.md, with a KIND of {', '.join(KINDS)}"
        elif not (lines := file.read_text(encoding="utf-8").splitlines()):
            yield f"{where}: empty; say in a line what has changed"
        else:
            yield from faults_of_lines(where, lines)
    unreleased = UNRELEASED.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if not unreleased:
        yield "CHANGELOG.md: expected the heading `## [Unreleased]`"
    elif re.search(r"^(- |#)", unreleased[1], re.MULTILINE):
        yield "CHANGELOG.md: entries below [Unreleased]; move them into changes/"


def section(root, version, date):
    parts = [f"## [{version}] - {date}"]
    for kind, heading in KINDS.items():
        texts = [file.read_text(encoding="utf-8").strip("\n") for file in fragments(root)
                 if file.name.endswith(f".{kind}.md")]
        if texts:  # links lead from the repository's root now
            parts += [f"### {heading}", "\n".join(texts).replace("](../", "](")]
    return "\n\n".join(parts) + "\n\n"


def faults_of_release(root, version, date):
    yield from faults(root)
    if not fragments(root):
        yield "changes/: no changes to release"
    try:
        datetime.date.fromisoformat(date)
    except ValueError:
        yield f"expected a date such as 2027-01-31, received {date}"
    if f"## [{version}]" in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md: {version} has a section already"
    project = PROJECT_VERSION.search((root / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    if project != version:
        yield f"CMakeLists.txt: the version is {project}, not {version}; change it first"


def release(root, version, date):
    """The problems; none: it is done."""
    if found := list(faults_of_release(root, version, date)):
        return found
    file = root / "CHANGELOG.md"
    text = file.read_text(encoding="utf-8")
    end = UNRELEASED.search(text).end()
    file.write_text(text[:end] + section(root, version, date) + text[end:], encoding="utf-8")
    for one in fragments(root):
        one.unlink()
    return []


def main(words):
    root = pathlib.Path(__file__).resolve().parent.parent
    if words == ["--check"]:
        found = list(faults(root))
    elif len(words) == 3 and words[0] == "--release":
        found = release(root, *words[1:])
    else:
        print(f"changelog: expected --check, or --release VERSION DATE, received '{' '.join(words)}'", file=sys.stderr)
        return 2
    for problem in found:
        print(f"changelog: {problem}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
