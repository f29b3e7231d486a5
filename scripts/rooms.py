#!/usr/bin/env python3
"""Writes headroom/rooms.txt into the documentation: the table of docs/design/layers.md, and the line
of each room's README that says what the room may include.

    scripts/rooms.py           write them
    scripts/rooms.py --check   exit 1 and name each one that is behind, each public header that the
                               README of its room does not name, and each file that a README names
                               and that does not exist; tests/build/layers.py does the same
"""
import dataclasses
import pathlib
import re
import sys

LINE = re.compile(r"(core|engine) +([a-z_/]+): *([a-z_/ ]*)")
WING = re.compile(r"wing +([a-z]+): (.+)")
INSIDE = re.compile(r"inside +([a-z_]+): *([a-z_ ]+)")
TABLE = "docs/design/layers.md"
TABLE_ROWS = re.compile(r"(?<=<!-- rooms -->\n).*?(?=<!-- end of rooms -->)", re.DOTALL)


@dataclasses.dataclass
class Room:
    layer: str  # "core", without LibTorch, or "engine"
    name: str  # its folder below headroom/: "gpu", "cli/core"
    may_include: list[str]
    folders: list[str] = dataclasses.field(default_factory=list)  # private ones, in their order
    wing: str = ""

    @property
    def readme(self):
        return f"headroom/{self.name.split('/')[0]}/README.md"

    @property
    def part(self):
        """`core/` of cli/core: a room that shares its README; "" for others."""
        return f"`{self.name.split('/')[1]}/`" if "/" in self.name else ""

    def sentence(self):
        may = [f"`{name}`" for name in self.may_include] + ["LibTorch"] * (self.layer == "engine")
        names = ", ".join(may[:-1]) + " and " * (len(may) > 1) + "".join(may[-1:]) or "no other room"
        return f"{self.part} may include {names}." if self.part else f"May include {names}."

    def sentence_pattern(self):
        return re.compile(rf"^{self.part + ' m' if self.part else 'M'}ay include.*$", re.MULTILINE)

    def holds(self, readme):
        """The first sentence of its README, or of the line that begins with its part."""
        text = readme.split(f"\n- {self.part}: ", 1) if self.part else readme.split("\n\n", 1)
        return re.match(r".*?\.(?=\s|$)", text[-1], re.DOTALL)[0].replace("\n", " ").removesuffix(".")


def read_rooms(root):
    """The rooms by name, in the order of headroom/rooms.txt. Throws ValueError for a line that is none."""
    rooms, wing = {}, ""
    for number, line in enumerate((root / "headroom/rooms.txt").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if match := WING.fullmatch(line):
            wing = f"**{match[1]}**: {match[2]}"
            continue
        if (match := INSIDE.fullmatch(line)) and match[1] in rooms:
            rooms[match[1]].folders = match[2].split()
            continue
        if not (match := LINE.fullmatch(line)) or match[2] in rooms:
            raise ValueError(f"headroom/rooms.txt:{number}: expected `core|engine ROOM: ROOM...`, once for each "
                             f"room, received '{line}'")
        rooms[match[2]] = Room(match[1], match[2], match[3].split(), wing=wing)
    return rooms


def table(root, rooms):
    lines, wing = ["| room | layer | holds | may include |", "| --- | --- | --- | --- |"], ""
    for room in rooms.values():
        if room.wing != wing:
            wing = room.wing
            lines.append(f"| {wing} | | | |")
        holds = room.holds((root / room.readme).read_text())
        lines.append(f"| [{room.name}](../../{room.readme}) | {room.layer} | {holds} "
                     f"| {', '.join(room.may_include) or 'nothing of ours'} |")
    return "\n".join(lines) + "\n"


def written(root, rooms):
    """The pages as they should be: path and text. A page without its place for them has None."""
    for path in dict.fromkeys(room.readme for room in rooms.values()):
        text = (root / path).read_text() if (root / path).is_file() else ""
        for room in rooms.values():
            if room.readme == path and text is not None:
                text, places = room.sentence_pattern().subn(room.sentence(), text)
                text = text if places == 1 else None
        yield path, text
    if all((root / room.readme).is_file() for room in rooms.values()):
        rows = table(root, rooms)
        text, places = TABLE_ROWS.subn(lambda _: rows, (root / TABLE).read_text())
        yield TABLE, text if places == 1 else None


def files_named(readme):
    """`lines.h`, `gpu/sampler.h`: the files of ours that a README names."""
    return set(re.findall(r"`((?!ATen/|torch/)[\w./]+\.(?:h|cpp|py|json|txt))`", readme))


def problems(root):
    rooms = read_rooms(root)
    for path, text in written(root, rooms):
        if text is None:
            yield (f"{path}: expected one line that begins with `May include`, or the marks of the table; "
                   "add it and run scripts/rooms.py")
        elif text != (root / path).read_text():
            yield f"{path}: behind headroom/rooms.txt; run scripts/rooms.py"
    every = [str(file.relative_to(root)) for folder in ("headroom", "tests") for file in (root / folder).rglob("*.*")]
    for path in dict.fromkeys(room.readme for room in rooms.values()):
        readme = (root / path).read_text() if (root / path).is_file() else ""
        named = files_named(readme)
        for header in sorted((root / path).parent.glob("*.h")):
            if header.name not in named:
                yield f"{path}: does not name {header.name}; say in a line what that public header is for"
        for name in sorted(named):
            rooms_own = ("" if "/" in name else path.removesuffix("README.md"), "tests/")
            if not any(f"/{file}".endswith(f"/{name}") and file.startswith(rooms_own) for file in every):
                yield f"{path}: names {name}, which does not exist; name the file that took its place"


def write(root):
    for path, text in written(root, read_rooms(root)):
        if text is not None:
            (root / path).write_text(text)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if sys.argv[1:] == ["--check"]:
        found = list(problems(root))
        print("\n".join(found) or "rooms: every page agrees with headroom/rooms.txt")
        return 1 if found else 0
    write(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
