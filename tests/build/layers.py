#!/usr/bin/env python3
"""Holds every #include under headroom/ against headroom/rooms.txt, and every import of the Python package.

    layers.py SOURCE_DIR      exit 1 and name each include that breaks a rule
    layers.py --self-test     prove on small wrong trees that every rule can fail (every run does)

The rules: a room includes what its line allows and all that its line allows; rooms, files of a room and
Python's modules form no circles; `detail/` is private; the core has no LibTorch; public headers are
light; the pages that scripts/rooms.py writes are up to date.
"""
import ast
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import rooms as pages  # noqa: E402

TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# Not in a public header: the first three belong in .cpp files of few places, the last two take
# seconds to compile (16 s for torch/torch.h).
HEAVY = re.compile(r"^(CLI/|fmt/|spdlog/|torch/(torch|nn|all)\.h|nlohmann/json\.hpp)")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')


def room_of(path, rooms):
    """The room of a path such as headroom/gpu/machine.h: a folder, or one of the two in cli."""
    parts = path.split("/")[1:]
    return "/".join(parts[:2]) if "/".join(parts[:2]) in rooms else parts[0]


def included(root):
    """Each include as file, number of the line, and what it names."""
    for file in sorted((root / "headroom").rglob("*")):
        if file.suffix in (".h", ".cpp", ".cu", ".in"):
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if match := INCLUDE.match(line):
                    yield str(file.relative_to(root)), number, match[1]


def circles(graph, shortest):
    """One circle of at least `shortest` members for each set of nodes that has some."""
    found = {}
    for first in sorted(graph):
        for last in sorted(graph):
            way = first in graph[last] and way_between(graph, first, last, shortest)
            if way:
                found.setdefault(frozenset(way), way)
    return [" -> ".join([*way, way[0]]) for way in found.values()]


def way_between(graph, first, last, shortest):
    """The shortest way; for circles of three, not the direct one."""
    ahead, seen = [[first]], {first}
    while ahead:
        way = ahead.pop(0)
        for node in sorted(graph.get(way[-1], ())):
            if node == last and len(way) + 1 >= shortest:
                return [*way, last]
            if node not in seen and node != last:
                seen.add(node)
                ahead.append([*way, node])
    return None


def wrong_includes(rooms, includes):
    for file, number, path in includes:
        where, name = f"{file}:{number}", room_of(file, rooms)
        if name not in rooms:
            continue
        room = rooms[name]
        if path.startswith("headroom/"):
            folder, its_folder = file.split("/")[2], path.split("/")[2]
            if (other := room_of(path, rooms)) == name:
                if folder in room.folders and its_folder in room.folders[room.folders.index(folder) + 1:]:
                    yield f"{where}: {name}/{folder} may not include {name}/{its_folder}, which comes after it"
                continue
            if other not in room.may_include:
                yield (f"{where}: {name} may not include {other}; move what it needs into a room below both, or "
                       f"add {other} to the line of {name} in headroom/rooms.txt")
            elif its_folder in ["detail", *(rooms[other].folders if other in rooms else [])]:
                yield f"{where}: {path} is private to {other}; include a public header of {other}, or make one"
        elif room.layer == "core" and TORCH.match(path):
            yield f"{where}: {name} is of the core, which has no LibTorch; move this to a room of the engine"
        elif file.endswith(".h") and not name.startswith("cli/") and HEAVY.match(path):
            yield f"{where}: a public header must not include {path}; include it in the .cpp"


def wrong_rooms(root, rooms, includes):
    there = {room_of(str(p.relative_to(root)) + "/x", rooms) for p in (root / "headroom").glob("*/")}
    there |= {room_of(file, rooms) for file, _, _ in includes}
    for name in sorted(there - set(rooms) - {name.split("/")[0] for name in rooms if "/" in name}):
        yield f"headroom/{name}: no line in headroom/rooms.txt; add one"
    used = {(room_of(file, rooms), room_of(path, rooms)) for file, _, path in includes
            if path.startswith("headroom/")}
    for name, room in rooms.items():
        if not (root / "headroom" / name).is_dir():
            yield f"headroom/rooms.txt: {name} is no folder; remove its line"
        for other in room.may_include:
            if (name, other) not in used:
                yield f"headroom/rooms.txt: {name} includes nothing of {other}; remove {other} from its line"
            if room.layer == "core" and other in rooms and rooms[other].layer == "engine":
                yield f"headroom/rooms.txt: {name} is of the core and {other} is of the engine; remove {other}"
    for circle in circles({name: room.may_include for name, room in rooms.items()}, 2):
        yield f"headroom/rooms.txt: the rooms {circle} form a circle; move what closes it into a room below"


def wrong_files(includes):
    """A header and its source are one node. Two files may know each other, as an interface and its
    private part do, or a factory and what it makes."""
    graph = {}
    for file, _, path in includes:
        stem = file.rpartition(".")[0]
        graph.setdefault(stem, set()).update({path.removesuffix(".h")} - {stem})
    for circle in circles({stem: {one for one in others if one in graph} for stem, others in graph.items()}, 3):
        yield f"{circle}: these files include each other in a circle; move a declaration into a header of its own"


def wrong_imports(root):
    """Imports anywhere in a module of the Python package or its sub-packages, also those for type checkers
    alone: a reader of one module has to read the other, too."""
    package = root / "headroom/python"
    files = {}
    for file in sorted(package.glob("headroom/**/*.py*")):  # and the .pyi of a module in C++
        name = ".".join(file.relative_to(package).with_suffix("").parts)
        files[name.removesuffix(".__init__")] = ast.parse(file.read_text())

    def imports(tree):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (name.name for name in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                inner = [f"{node.module}.{name.name}" for name in node.names]
                yield from (one if one in files else node.module for one in inner)

    graph = {name: {one for one in imports(tree) if one in files} - {name} for name, tree in files.items()}
    for circle in circles(graph, 2):
        yield (f"headroom/python/headroom: the modules {circle} import each other in a circle; move what "
               "closes it into a module of its own")


def faults(root):
    try:
        rooms = pages.read_rooms(root)
    except ValueError as error:
        return [str(error)]
    includes = list(included(root))
    return [*wrong_rooms(root, rooms, includes), *wrong_includes(rooms, includes), *wrong_files(includes),
            *wrong_imports(root), *pages.problems(root)]


# ---- Each rule must be able to fail

def readme(words, files=""):
    return f"# A room\n\n{words}. And more.\n\n{files}\n\nMay include\n"


RIGHT = {
    "headroom/rooms.txt": "core base:\ncore gpu: base\ncore cli/core: base gpu\nengine sim: gpu\n"
                          "engine python:\nengine cli/engine: sim\ninside sim: device rules\n",
    "headroom/base/a.h": "#include <string>\n",
    "headroom/base/README.md": readme("Shared", "`a.h`"),
    "headroom/gpu/a.h": '#include "headroom/base/a.h"\n',
    "headroom/gpu/a.cpp": '#include "headroom/gpu/a.h"\n#include "headroom/gpu/detail/b.h"\n',
    "headroom/gpu/detail/b.h": '#include "headroom/gpu/a.h"\n',
    "headroom/gpu/detail/c.h": '#include "headroom/gpu/a.h"\n',
    "headroom/gpu/README.md": readme("Cards", "`a.h`"),
    "headroom/sim/a.cpp": '#include "headroom/gpu/a.h"\n#include <torch/torch.h>\n',
    "headroom/sim/rules/a.h": '#include "headroom/sim/device/a.h"\n',
    "headroom/sim/README.md": readme("Simulated cards"),
    "headroom/cli/core/a.h": '#include "headroom/gpu/a.h"\n#include <CLI/CLI.hpp>\n',
    "headroom/cli/core/a.cpp": '#include "headroom/base/a.h"\n',
    "headroom/cli/engine/a.cpp": '#include "headroom/sim/a.h"\n',
    "headroom/cli/README.md": "\n- `core/`: one.\n- `engine/`: two.\n\n`core/` may include\n`engine/` may include\n",
    "headroom/python/README.md": readme("Python"),
    "headroom/python/headroom/a.py": "from headroom import b\n",
    "headroom/python/headroom/b.py": "import os\n",
    "headroom/python/headroom/part/c.py": "from headroom import b\n",
    "docs/design/layers.md": "<!-- rooms -->\n<!-- end of rooms -->\n",
}

# Files that are wrong, what is added to them (to rooms.txt: in place of its line of gpu), and words of
# the complaint.
WRONG = [
    ("base/b.cpp", '#include "headroom/gpu/a.h"', "base may not include gpu"),
    ("sim/b.cpp", '#include "headroom/base/a.h"', "sim may not include base"),
    ("cli/core/b.cpp", '#include "headroom/sim/a.h"', "cli/core may not include sim"),
    ("cli/core/b.cpp", '#include "headroom/cli/engine/a.h"', "cli/core may not include cli/engine"),
    ("cli/core/b.cpp", '#include "headroom/gpu/detail/b.h"', "is private to gpu"),
    ("cli/engine/b.cpp", '#include "headroom/sim/device/a.h"', "is private to sim"),
    ("sim/device/a.h", '#include "headroom/sim/rules/a.h"', "sim/device may not include sim/rules"),
    ("cli/core/b.cpp", "#include <torch/torch.h>", "has no LibTorch"),
    ("gpu/b.cpp", "#include <ATen/ATen.h>", "has no LibTorch"),
    ("sim/b.h", "#include <torch/torch.h>", "a public header must not include torch/torch.h"),
    ("gpu/detail/b.h", "#include <nlohmann/json.hpp>", "a public header must not include nlohmann/json.hpp"),
    ("attic/a.cpp", "", "headroom/attic: no line"),
    ("gpu/detail/b.h", '#include "headroom/gpu/detail/c.h"', "in a circle"),
    ("python/headroom/b.py", "def f():\n    from headroom.a import x", "import each other in a circle"),
    ("python/headroom/b.py", "if TYPE_CHECKING:\n    from headroom import a", "import each other in a circle"),
    ("python/headroom/b.py", "import headroom.part.c", "import each other in a circle"),
    ("gpu/c.h", "", "does not name c.h"),
    ("gpu/README.md", "`sentence.h`", "names sentence.h, which does not exist"),
    ("gpu/README.md", "May include all.", "expected one line that begins with"),
    ("rooms.txt", "core gpu:", "gpu may not include base"),
    ("rooms.txt", "core gpu: base oom", "gpu includes nothing of oom; remove"),
    ("rooms.txt", "core gpu: base sim", "gpu -> sim -> gpu form a circle"),
    ("rooms.txt", "core gpu: base sim", "sim is of the engine"),
    ("rooms.txt", "core gpu: base\ncore oom:", "oom is no folder"),
    ("rooms.txt", "engine gpu: base", "README.md: behind"),
    ("rooms.txt", "engine gpu: base", "layers.md: behind"),
    ("rooms.txt", "core gpu base", "expected `core|engine"),
]


def self_test():
    for wrong, added, words in [("rooms.txt", "core gpu: base", None), *WRONG]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in RIGHT.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            pages.write(root)
            file = root / "headroom" / wrong
            file.parent.mkdir(exist_ok=True)
            before = file.read_text() if file.exists() else ""
            file.write_text(before.replace("core gpu: base", added) if wrong == "rooms.txt" else f"{before}{added}\n")
            found = faults(root)
            assert words is None or any(words in one for one in found), f"{wrong} with {added}: {words}: {found}"
            assert words is not None or not found, found


def main():
    self_test()
    if sys.argv[1:] == ["--self-test"]:
        return 0
    found = faults(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "layers: every include and every page agrees with headroom/rooms.txt")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
