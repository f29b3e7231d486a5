#!/usr/bin/env python3
"""Who includes whom: headroom/rooms.txt against every #include under headroom/.

    layers.py SOURCE_DIR      exit 1 and name each include that breaks the rule
    layers.py --self-test     prove on a small wrong tree that every rule can fail
"""
import pathlib
import re
import sys
import tempfile

TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# What a public header must not bring along: the first three are for .cpp files of few places, the
# last costs 16 s to compile.
HEAVY = re.compile(r"^(CLI/|fmt/|spdlog/|torch/(torch|nn|all)\.h|nlohmann/json\.hpp)")


def read_rooms(path):
    rooms = {}
    for line in path.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        kind, names = line.split(":")
        rooms[kind] = names.split()
    return rooms


def allowed(rooms, room, part):
    """The rooms that a file of `room` may include, its own among them."""
    core, engine = rooms["core"], rooms["engine"]
    if room in core:
        return set(core[:core.index(room) + 1])
    if room in engine:
        return set(core) | set(engine[:engine.index(room) + 1])
    return set(core) | {"cli"} if part == "core" else set(core) | set(engine) | {"cli"}


def includes(file):
    for number, line in enumerate(file.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        if match:
            yield number, match[1]


def faults(root):
    rooms = read_rooms(root / "headroom/rooms.txt")
    known = [name for kind, names in rooms.items() if not kind.endswith("/") for name in names]
    for folder in sorted(p for p in (root / "headroom").iterdir() if p.is_dir()):
        if folder.name not in known:
            yield f"{folder.relative_to(root)}: no such room in headroom/rooms.txt"
    for file in sorted((root / "headroom").rglob("*")):
        if file.suffix not in (".h", ".cpp", ".cu", ".in"):
            continue
        parts = file.relative_to(root / "headroom").parts
        room, part = parts[0], parts[1]
        if room not in known:
            continue
        may = allowed(rooms, room, part)
        folders = rooms.get(f"{room}/", [])
        without_torch = room in rooms["core"] or (room == "cli" and part == "core")
        for number, path in includes(file):
            where = f"{file.relative_to(root)}:{number}"
            if path.startswith("headroom/"):
                other, folder = path.split("/")[1:3]
                if other not in may:
                    yield f"{where}: {room} must not include {other}"
                elif other != room and folder in ["detail", *rooms.get(f"{other}/", [])]:
                    yield f"{where}: {path} is private to {other}"
                elif other == room and part in folders and folder in folders[folders.index(part) + 1:]:
                    yield f"{where}: {room}/{part} must not include {room}/{folder}"
            elif without_torch and TORCH.match(path):
                yield f"{where}: the core knows no LibTorch, but includes {path}"
            elif file.suffix == ".h" and room != "cli" and HEAVY.match(path):
                yield f"{where}: a public header must not include {path}"


def self_test():
    good = {
        "rooms.txt": "core: base gpu\nengine: memory sim nn\nsim/: device rules\ncli: cli\n",
        "base/a.h": "#include <string>\n",
        "gpu/a.h": '#include "headroom/base/a.h"\n#include "headroom/gpu/detail/b.h"\n',
        "sim/a.cpp": '#include "headroom/memory/a.h"\n#include <torch/torch.h>\n',
        "sim/rules/a.cpp": '#include "headroom/sim/device/a.h"\n',
        "cli/core/a.cpp": '#include "headroom/gpu/a.h"\n',
        "cli/engine/a.cpp": '#include "headroom/sim/a.h"\n',
    }
    wrong = {
        "base/a.h": '#include "headroom/gpu/a.h"\n',
        "gpu/a.cpp": '#include "headroom/sim/a.h"\n',
        "gpu/b.cpp": "#include <ATen/ATen.h>\n",
        "memory/a.h": '#include "headroom/sim/a.h"\n',
        "sim/a.h": "#include <torch/torch.h>\n",
        "sim/b.cpp": '#include "headroom/gpu/detail/b.h"\n',
        "sim/device/a.cpp": '#include "headroom/sim/rules/a.h"\n',
        "nn/a.cpp": '#include "headroom/sim/device/a.h"\n',
        "gpu/c.h": "#include <nlohmann/json.hpp>\n",
        "cli/core/a.cpp": '#include "headroom/sim/a.h"\n',
        "cli/core/b.cpp": "#include <torch/torch.h>\n",
        "attic/a.h": "",
    }

    def found_in(files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / "headroom" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(faults(pathlib.Path(folder)))

    assert not found_in(good), found_in(good)
    for name, text in wrong.items():
        assert len(found_in({**good, name: text})) == 1, f"{name} was not found: {text}"


def main():
    self_test()
    if sys.argv[1:] == ["--self-test"]:
        return 0
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "layers: every include keeps the order of headroom/rooms.txt")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
