#!/usr/bin/env python3
"""Writes headroom/sim/data/cuda_operators.txt: the aten operators for which LibTorch has a kernel of
CUDA's own. It needs the full torch wheel (the one with libtorch_cuda.so; no GPU), with its Python:

    .venv-peers/bin/python scripts/cuda_operators.py           # writes the file
    .venv-peers/bin/python scripts/cuda_operators.py --check   # exit 1 if it would change
"""

import pathlib
import sys

import torch

FILE = pathlib.Path(__file__).resolve().parent.parent / "headroom/sim/data/cuda_operators.txt"
HEAD = """\
# aten operators with a kernel of CUDA's own in torch {version}, from its dispatcher;
# written by scripts/cuda_operators.py.
"""


def cuda_operators():
    for name in torch._C._dispatch_get_all_op_names():
        space, _, operator = name.partition("::")
        if space == "aten" and torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
            yield operator


def main():
    operators = sorted(cuda_operators())
    if not operators:
        sys.exit("this torch has no CUDA kernels: a wheel with libtorch_cuda.so is needed")
    text = HEAD.format(version=torch.__version__.partition("+")[0]) + "\n".join(operators) + "\n"
    if "--check" in sys.argv[1:]:
        if FILE.read_text() != text:
            sys.exit(f"{FILE} is not what torch {torch.__version__} says; run {sys.argv[0]}")
        return
    FILE.write_text(text)


if __name__ == "__main__":
    main()
