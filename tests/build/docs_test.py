#!/usr/bin/env python3
"""Proves on small wrong pages that each check of scripts/docs.py can fail. `make docs` runs it."""

import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"))
import docs  # noqa: E402


def main():
    fence = "```"
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "there.md").write_text("# A heading: *one*\n\n# A heading: *one*\n")
        (root / "real.cpp").write_text("int main() {}\n")

        def console(mark, *lines):
            return {"p.md": "\n".join([f"<!-- {mark} -->", f"{fence}console", *lines, fence])}

        def from_file(line):
            return {"p.md": f"<!-- from: real.cpp -->\n{fence}cpp\n{line}\n{fence}\n"}

        def linked(target):
            return docs.check_links(root, {"p.md": f"[x]({target})"})

        (root / "clean.txt").write_text("~/x $HOME/y https://a.b/work/c\n")
        (root / "dirty.txt").write_text("see /" + "home/somebody/x\n")
        (root / "docs/reference").mkdir(parents=True)
        (root / docs.COMMANDS_PAGE).write_text("as it is\n")
        cases = [
            ("a link to nothing", linked("gone.md"), linked("there.md")),
            ("a wrong anchor", linked("there.md#b"), linked("there.md#a-heading-one-1")),
            ("a page without a link to it", docs.check_index(root, {"docs/a.md": "", "docs/README.md": ""}),
             docs.check_index(root, {"docs/a.md": "", "docs/README.md": "[a](a.md)"})),
            ("an example without a mark", docs.check_blocks(root, console("x", "$ true")),
             docs.check_blocks(root, console("not tried: it needs a GPU", "$ false"))),
            ("an unknown mark", docs.check_blocks(root, console("try: scene=moon", "$ true")), []),
            ("a wrong exit code", docs.check_blocks(root, console("try", "$ exit 3")),
             docs.check_blocks(root, console("try: exit=3", "$ true", "$ exit 3"))),
            ("another output", docs.check_blocks(root, console("try", "$ echo 'a  b'", "a b")),
             docs.check_blocks(root, console("try", "$ echo 'a  b'; echo c", "a  b", "..."))),
            ("too much output", docs.check_blocks(root, console("try", "$ echo a; echo b", "a")), []),
            ("what does not vary", docs.check_blocks(root, console("try: vary=age", "$ echo 4 s 5", "3.1 s 6")),
             docs.check_blocks(root, console("try: vary=age,pid", "$ echo '4 s  PID 5512'", "3.1 s PID 41"))),
            ("an excerpt that is none", docs.check_blocks(root, from_file("int f() {}")),
             docs.check_blocks(root, from_file("int main() {}"))),
            ("an old page of commands", docs.check_commands_page(root, "as it was\n"),
             docs.check_commands_page(root, "as it is\n")),
            ("a folder of the author", docs.check_folders(root, ["dirty.txt"]), docs.check_folders(root, ["clean.txt"])),
        ]
        bad = [f"{what} is not noticed" for what, wrong, _ in cases if not list(wrong)]
        for what, _, right in cases:
            bad += [f"{what}: complains without reason: {complaint}" for complaint in right]
    for problem in bad:
        print(f"docs_test: {problem}", file=sys.stderr)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
