"""`headroom trace replay` prints what PyTorch's own allocator says of the same file.

The files are streams of the fuzzer in the plain form. Each side reads them with a reader of its own.
"""

import json
import shlex
import subprocess
import sys
import tempfile

STREAMS = 120


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def compare(oracle, headroom, index):
    """Whether stream `index` was compared, and not left out because of a fault of the original."""
    text = run(oracle, "print", str(index), "--seed", "7")
    options = shlex.split(text.splitlines()[1].removeprefix("# "))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        verdict = run(oracle, "compare", file.name, *options)
        if " 0 left out" not in verdict:
            return False
        real = json.loads(run(oracle, "replay", file.name, *options, "--json"))
        printed = json.loads(run(headroom, "trace", "replay", file.name, *options, "--json"))
    if "hash table" in verdict:
        del real["inactive_split"]["peak"]
    for key in real.keys() - {"events_per_s"}:
        if key == "inactive_split":
            printed[key] = {name: printed[key][name] for name in real[key]}
        if printed[key] != real[key]:
            sys.exit(f"stream {index} ({shlex.join(options)}): {key}\n"
                     f"  real: {real[key]}\n  headroom: {printed[key]}")
    return True


def main(oracle, headroom):
    compared = sum(compare(oracle, headroom, index) for index in range(STREAMS))
    print(f"{compared} of {STREAMS} files compared")
    if compared < STREAMS * 9 // 10:
        sys.exit("too few to mean anything")


main(*sys.argv[1:])
