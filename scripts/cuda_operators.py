#!/usr/bin/env python3
"""Writes headroom/sim/data/cuda_operators.txt: the aten operators for which LibTorch has a kernel of
CUDA's own, in each version that Headroom builds with. It needs the full torch wheel (the one with
libtorch_cuda.so; no GPU), with its Python, and changes what the file says of that version:

    .venv-peers/bin/python scripts/cuda_operators.py           # writes the file
    .venv-peers/bin/python scripts/cuda_operators.py --check   # exit 1 if it would change
"""

import pathlib
import sys

import torch

FILE = pathlib.Path(__file__).resolve().parent.parent / "headroom/sim/data/cuda_operators.txt"
MINORS = range(11, 16)
HEAD = """\
# aten operators with a kernel of CUDA's own in torch 2.11 to 2.15, from its dispatcher: those of all these
# versions, and behind others the first or last that has them. Written by scripts/cuda_operators.py.
"""


def cuda_operators():
    """Those of the torch that runs this."""
    for name in torch._C._dispatch_get_all_op_names():
        space, _, operator = name.partition("::")
        if space == "aten" and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
            yield operator


def minor_of(version):
    return int(version.split(".")[1])


def parsed(text):
    """The names, each with the minor versions that have it."""
    minors = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, *bounds = line.split()
        bound = {word: minor_of(version) for word, version in zip(bounds[::2], bounds[1::2])}
        minors[name] = {minor for minor in MINORS
                        if bound.get("since", minor) <= minor <= bound.get("until", minor)}
    return minors


def written(minors):
    lines = []
    for name, has in sorted(minors.items()):
        if has != set(range(min(has), max(has) + 1)):
            sys.exit(f"{name} went and came back: {sorted(has)}; the file cannot say that")
        since = f" since 2.{min(has)}" if min(has) > MINORS[0] else ""
        until = f" until 2.{max(has)}" if max(has) < MINORS[-1] else ""
        lines.append(name + since + until)
    return HEAD + "\n".join(lines) + "\n"


def main():
    here, operators = minor_of(torch.__version__), set(cuda_operators())
    if not operators:
        sys.exit("this torch has no CUDA kernels: a wheel with libtorch_cuda.so is needed")
    minors = parsed(FILE.read_text())
    for name in operators | set(minors):
        has = minors.setdefault(name, set())
        (has.add if name in operators else has.discard)(here)
    text = written({name: has for name, has in minors.items() if has})
    if "--check" in sys.argv[1:]:
        if FILE.read_text() != text:
            sys.exit(f"{FILE} is not what torch {torch.__version__} says; run {sys.argv[0]}")
        return
    FILE.write_text(text)


if __name__ == "__main__":
    main()
