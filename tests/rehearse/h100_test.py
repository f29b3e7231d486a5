"""Programs of tests/rehearse/programs that ran on a real H100: their rehearsals have the peaks measured there.

h100.json has the allocator's peaks of whole runs (torch.cuda.memory_stats at the exit).

    h100_test.py            those of a short run
    h100_test.py --all      all of them (make rehearse-check)"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import programs

HERE = pathlib.Path(__file__).resolve().parent
SHORT = ("nanogpt.py", "peft_lora.py", "moe.py", "mamba.py", "torchvision_detection.py")
# cuDNN chooses its ways, and the memory that they take, when the program runs. All others: 0.1 %.
WITHIN = {"timm_train.py": 0.02, "lightning_image.py": 0.02, "diffusers_text_to_image.py": 0.002,
          "diffusers_lora.py": 0.002,
          "recommender.py": 0.005}  # embedding bags: their gradients' sort needs less than is taken for it


def is_unpredictable(run):
    """It lets cuDNN try its ways (torch.backends.cudnn.benchmark), with memory for each."""
    return "cudnn.benchmark" in (HERE / "programs" / run["file"]).read_text()


class OnARealCard(unittest.TestCase):
    def test_the_peaks(self):
        for run in json.loads((HERE / "h100.json").read_text())["runs"]:
            if "--all" not in sys.argv and run["file"] not in SHORT:
                continue
            with self.subTest(run["file"], args=run["args"]):
                found = self.rehearsed(run)
                if is_unpredictable(run):
                    self.assertIn("cudnn.benchmark", " ".join(found["notes"]))
                    self.assertLess(found["peak"]["requested_bytes"], run["requested"])
                    continue
                within = WITHIN.get(run["file"], 0.001)
                self.assertAlmostEqual(found["peak"]["requested_bytes"] / run["requested"], 1, delta=within)
                self.assertAlmostEqual(found["peak"]["allocated_bytes"] / run["allocated"], 1, delta=within)

    def rehearsed(self, run):
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [programs.HEADROOM, "rehearse", "--json", "--gpus", "sim:1xH100", "--steps", "1000", "--",
                 sys.executable, HERE / "programs" / run["file"], *run["args"], "--out", out],
                capture_output=True, text=True, timeout=600, env=programs.environment(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return json.loads(done.stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(one for one in sys.argv[1:] if one != "--all")])
