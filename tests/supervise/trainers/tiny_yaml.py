"""Reads the YAML of simple settings: nested mappings by indentation, scalars, comments."""


def scalar(text):
    text = text.strip()
    if text[:1] in "'\"" and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            pass
    return {"true": True, "false": False, "null": None, "~": None, "": None}.get(text, text)


def load(text):
    root = {}
    open_mappings = [(-1, root)]
    for raw in text.splitlines():
        line = raw.split(" #", 1)[0].rstrip()
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        key, _, value = line.strip().partition(":")
        while open_mappings[-1][0] >= indent:
            open_mappings.pop()
        if value.strip():
            open_mappings[-1][1][key] = scalar(value)
        else:
            open_mappings[-1][1][key] = {}
            open_mappings.append((indent, open_mappings[-1][1][key]))
    return root
