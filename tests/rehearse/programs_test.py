"""Each program of tests/rehearse/programs: a run on the CPU, then rehearsals over what it left there.

    programs_test.py                 those of a short run
    programs_test.py --all           all of them (make rehearse-check)
    programs_test.py nanogpt moe     those of these names"""
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import unittest

import programs as those

SHORT = ("nanogpt", "run_glue", "peft_lora", "qlora-", "lightning_image", "ddp_toy", "moe", "gcn", "dcgan")
WEIGHTS = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".tar", ".distcp")


def contents(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in pathlib.Path(folder).rglob("*") if path.is_file()}


class Programs(unittest.TestCase):
    def check(self, program):
        if not program.is_possible:
            self.skipTest(f"needs {', '.join(program.entry['libraries'])}")
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "out"
            out.mkdir()
            real = subprocess.run(program.command(out, program.same_path or program.entry["args"]), cwd=out,
                                  capture_output=True, text=True, env=those.environment(), timeout=600, check=False)
            self.assertEqual(real.returncode, 0, real.stderr[-2000:])
            before = contents(out)
            self.harms_nothing(program, out, before)
            if "--all" in sys.argv:
                self.variants_are_rehearsed(program)
            if program.same_path is not None and program.entry["launcher"] == "python":
                self.computes_the_same(program, real.stdout)

    def harms_nothing(self, program, out, before):
        done = those.rehearse(program, out)
        self.assertEqual(done.code, 0, done.output[-2000:])
        # A program that goes on from its checkpoint has no steps left.
        if program.entry["reruns"] == "fresh":
            self.assertEqual(done.document["steps"], 3)
        self.assertGreater(done.document["peak"]["requested_bytes"], 0)
        after = contents(out)
        self.assertEqual({name: after.get(name) for name in before}, before)
        new = [name for name in after if name not in before]
        self.assertEqual([name for name in new if name.endswith(WEIGHTS)], [])
        listed = {str(pathlib.Path(one).name) for one in done.document["written"]}
        self.assertEqual([name for name in new if pathlib.Path(name).name not in listed], [])

    def variants_are_rehearsed(self, program):
        for more in program.entry.get("variants", []):
            with self.subTest(arguments=more), tempfile.TemporaryDirectory() as out:
                done = those.rehearse(program, out, arguments=[*program.arguments, *more])
                self.assertEqual(done.code, 0, done.output[-2000:])
                self.assertEqual(done.document["steps"], 3)

    def computes_the_same(self, program, output):
        with tempfile.TemporaryDirectory() as out:
            done = those.rehearse(program, out, "--mode", "compute", "--steps", "10", arguments=program.same_path)
        self.assertEqual(done.code, 0, done.output[-2000:])
        expected, found = those.losses_of(output), done.losses()
        self.assertGreaterEqual(len(found), 9, done.output[-2000:])  # the last is printed after its step
        if program.entry.get("other_order"):
            for step, loss in found.items():
                self.assertAlmostEqual(float(loss), float(expected[step]), delta=1e-5 * abs(float(loss)))
        else:
            self.assertEqual(found, {step: expected[step] for step in found})


def add(program):
    setattr(Programs, f"test_{program.name}", lambda self: self.check(program))


if __name__ == "__main__":
    names = [one for one in sys.argv[1:] if not one.startswith("-")]
    for one in those.programs():
        if "--all" in sys.argv or any(one.name.startswith(name) for name in names or SHORT):
            add(one)
    unittest.main(argv=[sys.argv[0], "-v"])
