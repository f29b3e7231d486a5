#!/usr/bin/env python3
"""Checks that the documentation is true. `make docs` runs it.

    scripts/docs.py              check everything; exit 1 and say where if something is wrong
    scripts/docs.py --write      write docs/reference/commands.md from the program's own help
    scripts/docs.py --show FILE  print what the tried examples of a page really print

What is checked, in every Markdown file of the repository:
  - relative links and anchors lead somewhere, and docs/README.md leads to every page under docs/;
  - a ```console block is preceded by a mark and does what it shows:
        <!-- try -->                          every `$` line ends with 0 and prints what stands below it
        <!-- try: exit=75 -->                 the last `$` line ends with 75
        <!-- try: scene=lab vary=pid,age -->  on a machine of SCENES; parts of the kinds VARYING differ
        <!-- not tried: why -->               the reason is for the reader
    Without output below a command only the exit code counts; a line `...` stands for any lines.
    Lines with parts that vary are compared word by word, without regard to the width of blanks;
  - a ```cpp block after <!-- from: FILE --> is a part of that file;
  - docs/reference/commands.md equals the output of --write;
  - no tracked text names a home or work folder of its author.
"""

import argparse
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
COMMANDS_PAGE = "docs/reference/commands.md"

# ---- The repository


def repository_files(root):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=True,
                         capture_output=True, text=True).stdout
    return [name for name in out.split("\0") if name and (root / name).is_file()]


def pages(root):
    return {name: (root / name).read_text() for name in repository_files(root) if name.endswith(".md")}


# ---- Links and anchors


def without_code(text):
    """The lines of a text, without code blocks and code in a line; the numbers of lines stay."""
    lines, fence = [], None
    for line in text.split("\n"):
        opening = re.match(r"\s*(```+|~~~+)", line)
        if opening and (fence is None or line.strip().startswith(fence)):
            fence = opening[1] if fence is None else None
            line = ""
        lines.append("" if fence else re.sub(r"`[^`]*`", "", line))
    return lines


def anchors(text):
    """The names GitHub gives to the headings of a page."""
    found, fence = {}, False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fence = not fence
        heading = None if fence else re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if not heading:
            continue
        name = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
        name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
        times = found.get(name, 0)
        found[name] = times + 1
        if times:
            found[f"{name}-{times}"] = 1
    return set(found)


def links(text):
    for number, line in enumerate(without_code(text), 1):
        for match in re.finditer(r"\[[^\]]*\]\(<?([^)>\s]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", line):
            yield number, match[1] or match[2]


def check_links(root, texts):
    for page, text in texts.items():
        for number, target in links(text):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (root / page).parent / path if path else root / page
            if not file.exists():
                yield f"{page}:{number}: no such file: {target}"
            elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
                yield f"{page}:{number}: no such heading: {target}"


def check_index(root, texts):
    index = "docs/README.md"
    led_to = {os.path.normpath(os.path.join("docs", target.partition("#")[0]))
              for _, target in links(texts.get(index, ""))}
    for page in texts:
        if page.startswith("docs/") and page != index and page not in led_to:
            yield f"{index}: no link to {page}"


# ---- Examples: the machines they run on


def job(folder, name):
    """A process that does nothing and looks like `python3 NAME`: `cat` waiting at a pipe."""
    if not (folder / name).exists():
        os.mkfifo(folder / name)
    return subprocess.Popen(["python3", name], executable="/bin/cat", cwd=folder,
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def card(number, name, reserved, used, processes, **more):
    return {"name": name, "uuid": f"GPU-{number}d3a6f10-0000-4000-8000-00000000000{number}",
            "total": "24GiB", "reserved": reserved, "used": used, "processes": processes, **more}


def fake_driver(folder, cards):
    """Environment variables that make Headroom load the driver of tests/fake_nvml with these cards."""
    file = folder / "machine.json"
    file.write_text(json.dumps({"driver": "580.65.06", "cuda_driver": 13000, "cards": cards}))
    return {"HEADROOM_NVML": str(BUILD / "lib/libfake_nvml.so"), "HEADROOM_FAKE_NVML": str(file)}


@contextlib.contextmanager
def lab(folder):
    """Four cards of two kinds: one crowded, one with a stopped job, two idle."""
    jobs = [job(folder, name) for name in ("train.py", "notebook.py", "serve.py")]
    jobs[2].send_signal(19)  # SIGSTOP
    train, notebook, serve = (j.pid for j in jobs)
    ada = "NVIDIA GeForce RTX 4090"
    try:
        yield fake_driver(folder, [
            card(0, "NVIDIA GeForce RTX 3090", "300MiB", "23GiB", utilization=97, temperature=71,
                 capability=[8, 6], power_mw=341000,
                 processes=[{"pid": train, "used": "20GiB", "sm": 96}, {"pid": notebook, "used": "2.4GiB"}]),
            card(1, ada, "357MiB", "9GiB", processes=[{"pid": serve, "used": "8.6GiB"}]),
            card(2, ada, "357MiB", "0", processes=[]),
            card(3, ada, "357MiB", "0", processes=[])])
    finally:
        for j in jobs:
            j.kill()
            j.wait()


@contextlib.contextmanager
def no_driver(folder):
    yield {"HEADROOM_NVML": str(folder / "libnvidia-ml.so.1")}


@contextlib.contextmanager
def traces(folder):
    """One made-up training run, as plain events and as a snapshot of PyTorch."""
    for name, form in (("run.txt", []), ("snapshot.pickle", ["--pickle"])):
        with open(folder / name, "wb") as out:
            subprocess.run([sys.executable, ROOT / "examples/traces/variable_lengths.py", *form], stdout=out, check=True)
    yield {}


def copies(files):
    """A folder with copies of these files of the repository."""
    @contextlib.contextmanager
    def scene(folder):
        for name, source in files.items():
            shutil.copy(ROOT / source, folder / name)
        yield {}
    return scene


SCENES = {
    "": copies({}), "lab": lab, "no-driver": no_driver, "traces": traces,
    "trace-file": copies({"run.hrtrace": "tests/fuzz/corpus/example.hrtrace",  # of four events
                          "read_hrtrace.py": "examples/traces/read_hrtrace.py"}),
    "train-loop": copies({name: f"examples/train_loop/{name}" for name in ("before.cpp", "after.cpp")}),
    "training": copies({"train.py": "examples/run/train.py"})}  # needs host memory by its batch

# ---- Examples: what they print

VARYING = {
    "pid": r"(?<![\d.])\b\d{2,7}\b(?!\.\d| %| C\b| W\b| GiB| MiB)",
    "age": r"\b\d+(?:\.\d+)?\s?(?:s|m|h|d)(?:\s?\d+\s?(?:s|m|h))?\b",
    "user": r"\b(?:alice|" + re.escape(pwd.getpwuid(os.getuid()).pw_name) + r"|root)\b",
    "time": r"\b(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?",
    "times": r"(?<![\w.])\d+(?:\.\d+)? (?:us|ms|s)\b",
    "seconds": r"(?<=_s\":)\s?[\d.e+-]+",  # of JSON: "age_s":0.0012
}


def varied(text, kinds):
    """A pattern for a line with parts that vary; any blanks equal any other blanks."""
    out, at = "", 0

    def literal(part):
        return r"\s+".join(re.escape(word) for word in re.split(r"\s+", part))

    while at < len(text):
        hits = [(hit.start(), kind, hit) for kind in kinds if (hit := re.compile(VARYING[kind]).search(text, at))]
        start, kind, hit = min(hits, key=lambda found: found[0]) if hits else (len(text), None, None)
        out += literal(text[at:start]) + (f"(?:{VARYING[kind]})" if hit else "")
        at = hit.end() if hit else start
    return out


def same(printed, lines, kinds):
    """True if this was printed: line by line, or with parts that vary, word by word."""
    text = "\n".join(line.rstrip() for line in printed.split("\n")).strip("\n")
    wanted = "\n".join(line.rstrip() for line in lines).strip("\n").split("\n")
    if kinds:
        pattern = "".join(r"(?:\S+\s+)*?" if line == "..." else varied(line.strip(), kinds) + r"\s+" for line in wanted)
        return re.fullmatch(pattern, text.strip() + "\n") is not None
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + r"\n" for line in wanted)
    return re.fullmatch(pattern, text + "\n") is not None


class Block:
    """A fenced block, the mark before it, and the line it begins in."""

    def __init__(self, page, number, language, mark, lines):
        self.page, self.number, self.language, self.mark, self.lines = page, number, language, mark, lines

    def options(self):
        text = self.mark.partition(":")[2]
        return dict(word.split("=", 1) for word in text.split())

    def commands(self):
        """Pairs of a command line and the lines below it."""
        out = []
        for line in self.lines:
            if line.startswith("$ "):
                out.append((line[2:], []))
            elif out and out[-1][0].endswith("\\") and not out[-1][1]:
                out[-1] = (out[-1][0] + "\n" + line, [])
            elif out:
                out[-1][1].append(line)
        return out


def blocks(page, text):
    lines, mark, current = text.split("\n"), "", None
    for number, line in enumerate(lines, 1):
        fence = re.match(r"```(\w*)", line)
        if current is not None:
            if line.startswith("```"):
                yield current
                current, mark = None, ""
            else:
                current.lines.append(line)
        elif fence:
            current = Block(page, number, fence[1], mark, [])
        elif comment := re.fullmatch(r"<!-- (.*?) -->", line.strip()):
            mark = comment[1]
        elif line.strip():
            mark = ""


def environment(folder, scene):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("HEADROOM_", "CUDA_", "PYTORCH_", "MAKE", "MFLAGS"))}
    return dict(kept, PATH=f"{BUILD / 'bin'}:{kept['PATH']}", LC_ALL="C.UTF-8", NO_COLOR="1",
                HEADROOM_STATE_DIR=str(folder / "state"), HEADROOM_LEASE_DIR=str(folder / "leases"), **scene)


def run_block(block):
    """What each command of the block printed and how it ended."""
    scene = SCENES[block.options().get("scene", "")]
    with tempfile.TemporaryDirectory() as name, scene(pathlib.Path(name)) as extra:
        folder = pathlib.Path(name)
        for command, lines in block.commands():
            # The README's command builds first; here the build is there already.
            real = command.replace("make demo", f"{ROOT}/scripts/demo.sh")
            done = subprocess.run(["bash", "-c", real], cwd=folder, env=environment(folder, extra), text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=60)
            # A page shows the output for a program in PATH.
            yield command, lines, done.stdout.replace(name, "/tmp"), done.returncode


def check_console(block):
    where = f"{block.page}:{block.number}"
    if block.mark.startswith("not tried: "):
        return
    if block.mark != "try" and not block.mark.startswith("try: "):
        yield f"{where}: an example without <!-- try --> or <!-- not tried: why -->"
        return
    options = block.options()
    unknown = [o for o in options if o not in ("exit", "scene", "vary")]
    kinds = [kind for kind in options.get("vary", "").split(",") if kind]
    unknown += [kind for kind in kinds if kind not in VARYING]
    if unknown or options.get("scene", "") not in SCENES:
        yield f"{where}: an unknown mark: {block.mark}"
        return
    results = list(run_block(block))
    for number, (command, lines, printed, code) in enumerate(results):
        wanted = int(options.get("exit", 0)) if number == len(results) - 1 else 0
        if code != wanted:
            yield f"{where}: `{command}` ends with {code}, expected {wanted}:\n{printed}"
        if any(line.strip() for line in lines) and not same(printed, lines, kinds):
            yield f"{where}: `{command}` prints something else:\n{printed}"


def check_blocks(root, texts):
    for page, text in texts.items():
        for block in blocks(page, text):
            if block.language == "console":
                yield from check_console(block)
            elif block.mark.startswith("from: "):
                file = root / block.mark.removeprefix("from: ")
                if not file.is_file() or "\n".join(block.lines) not in file.read_text():
                    yield f"{page}:{block.number}: this is not a part of {file.relative_to(root)}"


# ---- The page of the commands


def help_of(*command):
    return subprocess.run([str(BUILD / "bin/headroom"), *command, "--help"], check=True, capture_output=True,
                          text=True, env=environment(pathlib.Path("/nonexistent"), {})).stdout.rstrip()


def commands_in(help_text):
    return re.findall(r"^  ([a-z]+) ", help_text.partition("Subcommands:")[2].partition("\n\n")[0], re.MULTILINE)


def commands_page():
    main = help_of()
    names = commands_in(main)
    parts = ["# Commands", "What `--help` prints, written here by `scripts/docs.py --write`; `make docs` fails "
             "when this page is behind.\nThe guides show the commands at work; [exit codes](exit-codes.md), "
             "[JSON](json.md) and [devices](devices.md) have\npages of their own.",
             " · ".join(f"[{name}](#headroom-{name})" for name in names),
             "## headroom", f"```text\n{main}\n```"]
    for name in names:
        parts += [f"## headroom {name}", f"```text\n{help_of(name)}\n```"]
        for inner in commands_in(help_of(name)):
            parts += [f"### headroom {name} {inner}", f"```text\n{help_of(name, inner)}\n```"]
    return "\n\n".join(parts) + "\n"


def check_commands_page(root, wanted):
    file = root / COMMANDS_PAGE
    if not file.is_file() or file.read_text() != wanted:
        yield f"{COMMANDS_PAGE}: not the program's own help; run scripts/docs.py --write"


# ---- Folders of the author

# Users called `u`, `user` and `alice` are made up: tests and pages may have them.
AUTHORS_FOLDER = re.compile(r"(?<![\w.~}])/(?:home|root|work|Users)/(?!(?:u|user|alice)\b)\w[\w./-]*")


def check_folders(root, names):
    for name in names:
        data = (root / name).read_bytes()
        if b"\0" in data:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            for match in AUTHORS_FOLDER.finditer(line):
                yield f"{name}:{number}: names a folder of its author: {match[0]}"


# ---- What to do


def show(page):
    for block in blocks(page, (ROOT / page).read_text()):
        if block.language == "console" and block.mark.startswith("try"):
            print(f"== {page}:{block.number} <!-- {block.mark} -->")
            for command, _, printed, code in run_block(block):
                print(f"$ {command}\n{printed.rstrip()}" + (f"\n(exit {code})" if code else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {COMMANDS_PAGE}")
    parser.add_argument("--show", metavar="FILE", help="print what the examples of a page print")
    options = parser.parse_args()
    if options.show:
        return show(os.path.relpath(options.show, ROOT))
    if options.write:
        (ROOT / COMMANDS_PAGE).write_text(commands_page())
    texts = pages(ROOT)
    problems = [*check_links(ROOT, texts), *check_index(ROOT, texts), *check_blocks(ROOT, texts),
                *check_commands_page(ROOT, commands_page()), *check_folders(ROOT, repository_files(ROOT))]
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"docs: {len(texts)} pages, every link, example and generated page is right")


if __name__ == "__main__":
    main()
