"""A terminal's content as an SVG picture: the text of `tmux capture-pane -e`, with its colours."""
import html
import re
import subprocess
import time
import unicodedata

CELL, LINE, SIZE, EDGE = 8.4, 18, 14, 14
# Colours 0 to 15 on a dark ground, after the palette of xterm, a little calmer.
PALETTE = ["#1c1f26", "#e06c75", "#8fbf7f", "#d7ae60", "#6fa8dc", "#c397d8", "#62b7b7", "#c8ccd4",
           "#6b7280", "#f28b82", "#a8d5a2", "#f0c674", "#8ab4f8", "#d7aefb", "#7fd1d1", "#f2f3f5"]
GROUND, TEXT = "#15181e", "#d5d9e0"
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m|\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-B0]|\x0f|\x0e")


def colour_of(number):
    """A colour of the 256."""
    if number < 16:
        return PALETTE[number]
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return f"#{grey:02x}{grey:02x}{grey:02x}"
    levels = [0, 95, 135, 175, 215, 255]
    red, green, blue = (levels[(number - 16) // part % 6] for part in (36, 6, 1))
    return f"#{red:02x}{green:02x}{blue:02x}"


class Style:
    def __init__(self):
        self.text, self.ground, self.bold, self.dim, self.reverse = None, None, False, False, False

    def apply(self, codes):
        codes = [int(code or 0) for code in codes.split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self.__init__()
            elif code in (1, 2, 7):
                setattr(self, {1: "bold", 2: "dim", 7: "reverse"}[code], True)
            elif code in (22, 27):
                self.bold = self.dim = self.dim and code == 27
                self.reverse = self.reverse and code != 27
            elif code in (38, 48) and codes[:1] == [5]:
                setattr(self, "text" if code == 38 else "ground", colour_of(codes[1]))
                del codes[:2]
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.text = PALETTE[code - 30 if code < 40 else code - 82]
            elif 40 <= code <= 47 or 100 <= code <= 107:
                self.ground = PALETTE[code - 40 if code < 50 else code - 92]
            elif code == 39:
                self.text = None
            elif code == 49:
                self.ground = None

    def colours(self):
        text, ground = self.text or TEXT, self.ground
        return (ground or GROUND, text) if self.reverse else (text, ground)


def cells(text):
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def runs(line, style):
    """Pieces of one style, with the column where each begins."""
    column, at = 0, 0
    for match in [*SEQUENCE.finditer(line), None]:
        piece = line[at:match.start() if match else len(line)]
        if piece:
            yield column, piece, style.colours(), style.bold, style.dim
            column += cells(piece)
        if match:
            if match[1] is not None:
                style.apply(match[1])
            at = match.end()


def svg(screen, columns, title=""):
    lines = screen.rstrip("\n").split("\n")
    width, top = columns * CELL + 2 * EDGE, EDGE + 26
    height = len(lines) * LINE + top + EDGE
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
           f'width="{width:.0f}" height="{height:.0f}" font-size="{SIZE}" '
           'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace">',
           f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>']
    for at, colour in enumerate(("#e06c75", "#d7ae60", "#8fbf7f")):
        out.append(f'<circle cx="{EDGE + 6 + 18 * at}" cy="{EDGE + 4}" r="5.5" fill="{colour}"/>')
    out.append(f'<text x="{width / 2:.0f}" y="{EDGE + 9}" text-anchor="middle" fill="{PALETTE[8]}">'
               f'{html.escape(title)}</text>')
    style = Style()
    for row, line in enumerate(lines):
        for column, piece, (colour, ground), bold, dim in runs(line, style):
            x, y, long = EDGE + column * CELL, top + row * LINE, cells(piece) * CELL
            if ground:
                out.append(f'<rect x="{x:.1f}" y="{y}" width="{long:.1f}" height="{LINE}" fill="{ground}"/>')
            if piece.strip():
                out.append(f'<text x="{x:.1f}" y="{y + 13.5}" textLength="{long:.1f}" xml:space="preserve" '
                           f'fill="{colour}"{" font-weight=" + chr(34) + "600" + chr(34) if bold else ""}'
                           f'{" opacity=" + chr(34) + ".6" + chr(34) if dim else ""}>{html.escape(piece)}</text>')
    return "\n".join([*out, "</svg>", ""])


class Screen:
    """A command in a terminal of its own (tmux)."""

    def __init__(self, name, command, columns, rows, environment=()):
        self.name, self.columns = name, columns
        words = ["tmux", "-L", name, "-u", "new-session", "-d", "-s", name, "-x", str(columns), "-y", str(rows)]
        for setting in environment:
            words += ["-e", setting]
        subprocess.run([*words, command], check=True)
        self.tmux("set-option", "-g", "status", "off")

    def tmux(self, *words):
        return subprocess.run(["tmux", "-L", self.name, *words], check=True, capture_output=True, text=True).stdout

    def keys(self, *names):
        self.tmux("send-keys", "-t", self.name, *names)

    def text(self, colours=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []), "-t", self.name)

    def wait_for(self, text, seconds=60):
        for _ in range(seconds * 10):
            if text in self.text():
                return
            time.sleep(0.1)
        raise SystemExit(f"{self.name}: '{text}' did not appear in {seconds} s:\n{self.text()}")

    def close(self):
        subprocess.run(["tmux", "-L", self.name, "kill-server"], capture_output=True, check=False)
