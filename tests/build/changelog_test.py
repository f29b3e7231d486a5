#!/usr/bin/env python3
"""Holds the files in changes/ against the rules of scripts/changelog.py.

    changelog_test.py SOURCE_DIR      exit 1 and name each file that breaks a rule
    changelog_test.py --self-test     prove on small folders that every rule can fail, and that a release
                                      keeps every entry (every run does)
"""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import changelog  # noqa: E402

BEFORE = "# Changelog\n\nAll changes.\n\n## [Unreleased]\n\nIn [changes](changes/README.md).\n\n"
RIGHT = {
    "CMakeLists.txt": "project(headroom VERSION 0.2.0 LANGUAGES CXX)\n",
    "CHANGELOG.md": BEFORE + "## [0.1.0] - 2026-11-27\n\n### Added\n\n- All of it.\n",
    "changes/README.md": "# Changes\n\nNo entry.\n",
    "changes/faster-start.changed.md": "- It starts in half the time.\n",
    "changes/zero-rows.fixed.md": "- No rows are refused\n  ([guide](../docs/guides/train.md)).\n- So are none.\n",
    "changes/b.added.md": "- B.\n",
    "changes/a.added.md": "- A.\n",
}
SECTION = """## [0.2.0] - 2027-01-31

### Added

- A.
- B.

### Changed

- It starts in half the time.

### Fixed

- No rows are refused
  ([guide](docs/guides/train.md)).
- So are none.

"""

# Files that are wrong, what they contain, and words of the complaint.
WRONG = [
    ("changes/a.md", "- A.\n", "expected NAME.KIND.md"),
    ("changes/a.new.md", "- A.\n", "with a KIND of added, changed, removed, fixed"),
    ("changes/A_b.added.md", "- A.\n", "expected NAME.KIND.md"),
    ("changes/a.added.txt", "- A.\n", "expected NAME.KIND.md"),
    ("changes/a.added.md", "", "a.added.md: empty"),
    ("changes/a.added.md", "\n", "expected an entry"),
    ("changes/a.added.md", "A.\n", "expected an entry"),
    ("changes/a.added.md", "  and more\n", "expected an entry"),
    ("changes/a.added.md", "- A\nand more\n", "a.added.md:2: expected an entry"),
    ("changes/a.added.md", "### Added\n", "expected an entry"),
    ("changes/a.added.md", "- " + "x" * 149 + "\n", "151 characters"),
    ("CHANGELOG.md", "# Changelog\n", "expected the heading"),
    ("CHANGELOG.md", BEFORE + "- A.\n", "entries below [Unreleased]"),
    ("CHANGELOG.md", BEFORE + "### Added\n", "entries below [Unreleased]"),
]


def folder_of(files, folder):
    root = pathlib.Path(folder)
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def test_rules():
    for name, text, words in WRONG:
        with tempfile.TemporaryDirectory() as folder:
            found = list(changelog.faults(folder_of({**RIGHT, name: text}, folder)))
            assert any(words in one for one in found), f"{name} with {text!r}: {words}: {found}"
            assert changelog.release(pathlib.Path(folder), "0.2.0", "2027-01-31") == found, "released all the same"


def test_release():
    with tempfile.TemporaryDirectory() as folder:
        root = folder_of(RIGHT, folder)
        assert not list(changelog.faults(root))
        for version, date, words in [("0.2.0", "tomorrow", "such as 2027-01-31"), ("0.1.0", "2027-01-31", "already"),
                                     ("0.3.0", "2027-01-31", "the version is 0.2.0")]:
            assert any(words in one for one in changelog.release(root, version, date)), words
        assert (root / "CHANGELOG.md").read_text() == RIGHT["CHANGELOG.md"], "changed by a refused release"
        assert changelog.release(root, "0.2.0", "2027-01-31") == []
        assert (root / "CHANGELOG.md").read_text() == RIGHT["CHANGELOG.md"].replace(BEFORE, BEFORE + SECTION)
        assert [file.name for file in (root / "changes").iterdir()] == ["README.md"]
        assert any("no changes" in one for one in changelog.release(root, "0.2.0", "2027-01-31"))


def main():
    test_rules()
    test_release()
    if sys.argv[1:] == ["--self-test"]:
        return 0
    found = list(changelog.faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "changelog: every file in changes/ is one that a release can take")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
