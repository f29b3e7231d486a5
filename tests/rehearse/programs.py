"""The programs of tests/rehearse/programs, and how they are rehearsed."""
import dataclasses
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("HEADROOM_BUILD", HERE.parents[1] / "build")).resolve()
HEADROOM = BUILD / "bin" / "headroom"


@dataclasses.dataclass
class Program:
    entry: dict
    number: int

    @property
    def name(self):
        return f"{self.entry['file'].removesuffix('.py')}-{self.number}"

    def command(self, out, arguments):
        file = str(HERE / "programs" / self.entry["file"])
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                 str(self.entry["processes"])] if self.entry["launcher"] == "torchrun" else [sys.executable]
        return [*start, file, *arguments, "--out", str(out)]

    @property
    def is_possible(self):
        """True if all that it imports is there."""
        return all(importlib.util.find_spec(one.replace("-", "_")) for one in self.entry["libraries"])

    @property
    def arguments(self):
        """On CUDA."""
        return self.entry.get("cuda_args", self.entry["args"])

    @property
    def same_path(self):
        """Arguments with which CUDA and the CPU do the same to the bit; None: there are none."""
        if self.entry.get("device_random") and not self.entry.get("no_device_random_args"):
            return None
        if self.entry["paths_differ"] and not self.entry.get("same_path_args"):
            return None
        return [*self.entry["args"], *self.entry.get("same_path_args", []),
                *self.entry.get("no_device_random_args", [])]


def programs():
    with open(HERE / "programs" / "programs.toml", "rb") as file:
        entries = tomllib.load(file)["program"]
    return [Program(entry, number) for number, entry in enumerate(entries, 1)]


def environment():
    """Without the package's own path: `headroom rehearse` brings it."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclasses.dataclass
class Rehearsed:
    code: int
    document: dict
    output: str

    def losses(self):
        return losses_of(self.output)


def losses_of(output):
    return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)", output, re.MULTILINE)}


def rehearse(program, out, *options, arguments=None, gpus="sim:1xH100"):
    command = program.command(out, program.arguments if arguments is None else arguments)
    done = subprocess.run([HEADROOM, "rehearse", "--json", "--gpus", gpus, *options, "--", *command],
                          capture_output=True, text=True, env=environment(), timeout=600, cwd=out, check=False)
    try:
        document = json.loads(done.stdout)
    except json.JSONDecodeError:
        document = {}
    return Rehearsed(done.returncode, document, done.stderr)


def main():
    """Rehearses the programs that are named, or all, and prints a line for each."""
    wanted = sys.argv[1:]
    for program in programs():
        if wanted and not any(one in program.name for one in wanted):
            continue
        with tempfile.TemporaryDirectory() as out:
            done = rehearse(program, out)
            left = sorted(str(path.relative_to(out)) for path in pathlib.Path(out).rglob("*") if path.is_file())
        peak = done.document.get("peak", {}).get("requested_bytes")
        print(program.name, done.code, done.document.get("steps"), peak, done.document.get("took_s"), left[:6],
              flush=True)
        if done.code:
            print("    " + "\n    ".join(done.output.strip().splitlines()[-4:]), flush=True)


if __name__ == "__main__":
    main()
