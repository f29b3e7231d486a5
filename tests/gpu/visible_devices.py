#!/usr/bin/env python3
"""Compares Headroom's reading of CUDA_VISIBLE_DEVICES with PyTorch's own functions.

Their text is taken out of the wheel's torch/cuda/__init__.py and run alone, because importing torch
takes seconds and the functions need nothing of it but a driver to ask, which is played here.

    visible_devices.py TORCH_FOLDER PEER_BINARY
"""

import ast
import os
import random
import subprocess
import sys
import types
import typing

FUNCTIONS = ("_parse_visible_devices", "_transform_uuid_to_ordinals", "_device_count_nvml")
UUIDS = [
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-8932aaaa-d72c-4106-c12f-20bd9faed9f6",
    "GPU-5a000000-0000-0000-0000-00000000000c",
    "GPU-c0ffee00-d72c-4106-c12f-20bd9faed9f6",
]
NUMBERS = ["0", "1", "2", "3", "4", "7", "64", "-1", "-0", "+1", "+2", "00", "01", "1gpu2",
           "2ampere", "3.5", "0x1", "1 2", "99999999999999999999", "100000000000000000000"]
GARBAGE = ["", " ", "gpu", "a1", "*", "none", "--1", "+-1", "1+", "-", "+", "GPU", "gpu-8932f"]
SEEDED = 3000


def load_functions(torch_folder):
    """The functions of PyTorch, in a namespace where the driver has the cards of UUIDS."""
    path = os.path.join(torch_folder, "cuda", "__init__.py")
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in FUNCTIONS]
    if sorted(n.name for n in found) != sorted(FUNCTIONS):
        sys.exit(f"{path} has no longer the functions {FUNCTIONS}: read it anew")
    namespace = {
        "os": os,
        "cast": typing.cast,
        "torch": types.SimpleNamespace(version=types.SimpleNamespace(hip=None)),
        "_raw_device_count_nvml": lambda: len(UUIDS),
        "_raw_device_uuid_nvml": lambda: list(UUIDS),
    }
    exec(compile(ast.Module(found, []), path, "exec"), namespace)
    return namespace


def pytorch_sees(functions, value):
    """The cards PyTorch sees, or None where it raises instead of answering."""
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    try:
        count = functions["_device_count_nvml"]()
        devices = functions["_parse_visible_devices"]()
    except ValueError:  # int("+"): a lone sign
        return None
    if devices and isinstance(devices[0], str):
        devices = functions["_transform_uuid_to_ordinals"](devices, UUIDS)
    return devices[:count]


def one_element(random_source):
    kind = random_source.random()
    uuid = random_source.choice(UUIDS)
    if kind < 0.45:
        element = random_source.choice(NUMBERS[:6] if kind < 0.3 else NUMBERS)
    elif kind < 0.6:
        element = uuid
    elif kind < 0.8:
        element = uuid[: random_source.randint(4, len(uuid))]
    elif kind < 0.85:
        element = uuid.upper() if kind < 0.82 else uuid + "0"
    else:
        element = random_source.choice(GARBAGE)
    if random_source.random() < 0.1:
        element = random_source.choice([" ", "\t", "  "]) + element
    if random_source.random() < 0.1:
        element += random_source.choice([" ", "\t"])
    return element


def values():
    random_source = random.Random(20261121)
    singles = NUMBERS + GARBAGE + UUIDS + [u[:n] for u in UUIDS for n in (4, 6, 8, 9, 13)]
    pairs = [f"{a},{b}" for a in NUMBERS for b in NUMBERS]
    longer = []
    for _ in range(SEEDED):
        # Half of the lists are of one kind, else most would end at their second element.
        length = random_source.randint(1, 6)
        elements = [one_element(random_source) for _ in range(length)]
        if random_source.random() < 0.5:
            wants = elements[0].startswith("GPU-")
            elements = [e for e in elements if e.startswith("GPU-") == wants]
        longer.append(",".join(elements))
    return singles + pairs + longer


def main():
    torch_folder, peer = sys.argv[1:]
    functions = load_functions(torch_folder)
    asked = values()
    answer = subprocess.run([peer, *UUIDS], input="".join(v + "\n" for v in asked), text=True,
                            stdout=subprocess.PIPE, check=True).stdout.split("\n")[:-1]
    if len(answer) != len(asked):
        sys.exit(f"{len(asked)} values were asked, {len(answer)} answered")
    compared, distinct, wrong = 0, set(), 0
    for value, line in zip(asked, answer):
        expected = pytorch_sees(functions, value)
        if expected is None:
            continue
        compared += 1
        distinct.add(tuple(expected))
        received = [int(n) for n in line.split(",")] if line else []
        if received != expected:
            wrong += 1
            print(f"CUDA_VISIBLE_DEVICES={value!r}: PyTorch sees {expected}, Headroom {received}")
    print(f"{compared} values compared, {len(distinct)} different answers, {wrong} wrong")
    # Too few different answers would mean that the generator makes nothing but garbage.
    if wrong or compared < 2000 or len(distinct) < 40:
        sys.exit(1)


if __name__ == "__main__":
    main()
