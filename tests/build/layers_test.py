#!/usr/bin/env python3
"""Whether every #include under headroom/ keeps to headroom/rooms.txt.

    layers_test.py /path/to/checkout      first proves on made-up trees that it can fail
"""
import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# What a program that includes a header of ours should not have to have or to pay for.
NOT_IN_PUBLIC_HEADERS = re.compile(r"^(CLI|fmt|spdlog)/|^torch/torch\.h$")


def read_rooms(text):
    """{room: rooms it may include, itself among them}, {rooms without LibTorch}."""
    lists, section = {"core": [], "engine": [], "commands": []}, None
    for line in (line.split("#")[0].strip() for line in text.splitlines()):
        if line.startswith("["):
            section = lists[line.strip("[]")]
        elif line:
            section.append(line)
    core, engine = lists["core"], lists["engine"]
    allowed = {room: set(core[:i + 1]) for i, room in enumerate(core)}
    allowed.update({room: set(core) | set(engine[:i + 1]) for i, room in enumerate(engine)})
    without_libtorch = set(core)
    for line in lists["commands"]:
        room, *sees = line.split()
        allowed[room] = {room} | {each for name in sees for each in lists[name]}
        if "engine" not in sees:
            without_libtorch.add(room)
    return allowed, without_libtorch


def room_of(path):
    """"gpu/detail/nvml_abi.h" is of "gpu", "cli/core/main.cpp" of "cli/core"."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "cli" else parts[0]


def strangers(source, allowed):
    """Folders that no line of rooms.txt names."""
    names = [f.name for f in source.iterdir() if f.is_dir() and f.name != "cli"]
    if (source / "cli").is_dir():
        names += ["cli/" + f.name for f in (source / "cli").iterdir() if f.is_dir()]
    return [f"headroom/{name} is not in headroom/rooms.txt" for name in sorted(names)
            if name not in allowed]


def wrong_includes(path, text, allowed, without_libtorch):
    room = room_of(path)
    for kind, name in INCLUDE.findall(text):
        ours = name.removeprefix("headroom/") if name.startswith("headroom/") else None
        if ours and room_of(ours) not in allowed.get(room, set()):
            yield f"headroom/{path} includes {name}: {room} may not know {room_of(ours)}"
        elif ours and "/detail/" in ours and room_of(ours) != room:
            yield f"headroom/{path} includes {name}, which is private to {room_of(ours)}"
        elif kind == '"' and not ours:
            yield f'headroom/{path} includes "{name}": ours are named from headroom/ on'
        if LIBTORCH.match(name) and room in without_libtorch:
            yield f"headroom/{path} includes {name}: {room} has no LibTorch"
        if path.endswith(".h") and not room.startswith("cli") and NOT_IN_PUBLIC_HEADERS.match(name):
            yield f"headroom/{path} includes {name}, which a public header may not"


def complaints(checkout):
    source = checkout / "headroom"
    allowed, without_libtorch = read_rooms((source / "rooms.txt").read_text())
    found = strangers(source, allowed)
    files = [f for f in sorted(source.rglob("*")) if f.suffix in (".h", ".cpp", ".in")]
    for file in files:
        path = str(file.relative_to(source))
        found += wrong_includes(path, file.read_text(), allowed, without_libtorch)
    return found, len(files)


# ---- The proof that it can fail

ROOMS = "[core]\nbase\ngpu\nwatch\n[engine]\nlibtorch\nsim\n[commands]\ncli/core core\n" \
        "cli/engine core engine\n"
FINE = [("base/a.h", "<string>"), ("gpu/a.cpp", '"headroom/base/a.h"'),
        ("gpu/a.cpp", '"headroom/gpu/detail/b.h"'), ("libtorch/a.h", "<c10/core/Device.h>"),
        ("sim/a.cpp", '"headroom/libtorch/a.h"'), ("sim/a.cpp", '"headroom/watch/a.h"'),
        ("sim/a.cpp", "<torch/torch.h>"), ("cli/core/a.h", "<CLI/CLI.hpp>"),
        ("cli/core/a.cpp", '"headroom/watch/a.h"'), ("cli/engine/a.cpp", '"headroom/sim/a.h"'),
        ("gpu/a.cpp", "<fmt/format.h>")]
WRONG = [("base/a.h", '"headroom/gpu/a.h"'), ("gpu/a.cpp", '"headroom/watch/a.h"'),
         ("gpu/a.cpp", '  #  include "headroom/sim/a.h"'), ("libtorch/a.cpp", '"headroom/sim/a.h"'),
         ("watch/a.cpp", '"headroom/gpu/detail/b.h"'), ("gpu/a.cpp", "<torch/nn.h>"),
         ("gpu/a.cpp", "<ATen/ATen.h>"), ("watch/a.h", "<c10/core/Device.h>"),
         ("cli/core/a.cpp", "<torch/torch.h>"), ("cli/core/a.cpp", '"headroom/sim/a.h"'),
         ("gpu/a.cpp", '"headroom/cli/core/a.h"'), ("cli/core/a.cpp", '"headroom/cli/engine/a.h"'),
         ("gpu/a.h", "<CLI/CLI.hpp>"), ("gpu/a.h", "<fmt/format.h>"), ("sim/a.h", "<torch/torch.h>"),
         ("watch/a.h", "<spdlog/spdlog.h>"), ("gpu/a.cpp", '"card.h"'),
         ("gpu/a.cpp", "<headroom/watch/a.h>"), ("kitchen/a.h", "<string>"),
         ("cli/web/a.h", "<string>")]


def complaints_about(path, include):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "headroom", path)
        file.parent.mkdir(parents=True)
        Path(folder, "headroom/rooms.txt").write_text(ROOMS)
        file.write_text((include if "#" in include else f"#include {include}") + "\n")
        return complaints(Path(folder))[0]


def prove():
    for path, include in FINE:
        assert not complaints_about(path, include), f"{path} may include {include}"
    for path, include in WRONG:
        assert complaints_about(path, include), f"{path} with {include} was not noticed"


if __name__ == "__main__":
    prove()
    found, files = complaints(Path(sys.argv[1]))
    print("\n".join(found) or f"{files} files keep to headroom/rooms.txt")
    sys.exit(1 if found or files == 0 else 0)
