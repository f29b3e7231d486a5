"""headroom rehearse as a command: what it refuses, the largest batch, advice, ranks, exports."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

import programs

TRAIN = """
import argparse, torch
parser = argparse.ArgumentParser(); parser.add_argument("--batch-size", type=int, default=8)
rows = parser.parse_args().batch_size
blocks = [torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512))
          for _ in range(8)]
net = torch.nn.Sequential(*blocks).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(10):
    net(torch.randn(rows, 64, 512, device="cuda")).square().mean().backward()
    optimizer.step(); optimizer.zero_grad()
"""


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_it(self, *options, program=TRAIN, arguments=(), start=(sys.executable,), code=0):
        (self.folder / "train.py").write_text(textwrap.dedent(program))
        done = subprocess.run([programs.HEADROOM, "rehearse", *options, "--", *start, "train.py", *arguments],
                              capture_output=True, text=True, timeout=600, env=programs.environment(),
                              cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_the_largest_batch(self):
        done = self.run_it("--json", "--gpus", "sim:1x2GiB", "--fit", "--map", "--batch-size=batch",
                           arguments=("--batch-size", "8"))
        found = json.loads(done.stdout)
        fits = {one["batch"]: one["fits"] for one in found["probes"]}
        self.assertTrue(fits[found["max_batch"]])
        least_that_fails = min(batch for batch, fitted in fits.items() if not fitted)
        self.assertEqual(found["proven"], least_that_fails == found["max_batch"] + 1)
        self.assertGreater(found["max_batch"], 0.9 * least_that_fails)
        self.assertLessEqual(len(fits), 6)

    def test_advice_is_tried(self):
        done = self.run_it("--json", "--gpus", "sim:1xH100", "--advice", arguments=("--batch-size", "300"))
        whole = json.loads(done.stdout)
        changes = {one["change"]: one for one in whole["advice"]}
        self.assertIn("checkpointing", changes)
        self.assertIn("bf16-autocast", changes)
        for one in changes.values():
            self.assertEqual(one["peak_process_bytes"] + one["saves_process_bytes"],
                             whole["peak"]["process_bytes"])

    def test_the_bounds_of_what_is_assumed(self):
        program = """
            import torch
            net = torch.nn.Linear(512, 512).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                y = net(torch.randn(4096, 512, device="cuda"))
                (y[y > 0] * 2).sin().sum().backward()
                optimizer.step(); optimizer.zero_grad()
            """
        done = self.run_it("--json", "--gpus", "sim:1xH100", "--assume-true", "0,1", program=program)
        found = json.loads(done.stdout)
        none, all_ = found["by_share"]
        self.assertEqual((none["assume_true"], all_["assume_true"]), (0, 1))
        self.assertLess(none["peak_process_bytes"], all_["peak_process_bytes"])
        self.assertEqual(found["peak"]["process_bytes"], all_["peak_process_bytes"])

    def test_a_model_on_the_default_device_begins_the_first_step(self):
        program = """
            import torch
            torch.set_default_device("cuda")
            net = torch.nn.Linear(1024, 1024)
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                net(torch.randn(4096, 1024)).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            """
        for first in ('torch.set_default_device("cuda")', "torch.set_default_tensor_type(torch.cuda.FloatTensor)"):
            done = self.run_it("--json", "--gpus", "sim:1xH100",
                               program=program.replace('torch.set_default_device("cuda")', first))
            phases = {one["phase"]: one["peak_allocated_bytes"] for one in json.loads(done.stdout)["by_phase"]}
            inputs = 4 * 4096 * 1024
            self.assertEqual(phases["init"], 4 * 1024 * 1025 + inputs)
            self.assertGreater(phases["forward"], phases["init"] + inputs)

    def test_a_script_that_lets_cudnn_try_its_ways(self):
        program = """
            import torch
            torch.backends.cudnn.benchmark = True
            def main(steps):
                net = torch.nn.Conv2d(3, 8, 3).cuda()
                optimizer = torch.optim.SGD(net.parameters(), lr=1)
                for _ in range(steps):
                    net(torch.randn(2, 3, 16, 16, device="cuda")).sum().backward()
                    optimizer.step()
            main(STEPS)
            """
        for steps in ("9", "2"):  # after two it ends by itself, and its model is gone
            found = json.loads(self.run_it("--json", "--gpus", "sim:1xH100",
                                           program=program.replace("STEPS", steps)).stdout)
            self.assertIn("cudnn.benchmark", found["notes"][0])
            self.assertEqual(found["model"]["parameters"], 3 * 8 * 9 + 8)

    def test_processes_on_one_card_add_up(self):
        program = """
            import torch, torch.multiprocessing as mp
            def work(rank):
                net = torch.nn.Linear(8192, 8192, device="cuda")
                optimizer = torch.optim.Adam(net.parameters())
                for _ in range(9):
                    net(torch.randn(4, 8192, device="cuda")).sum().backward()
                    optimizer.step(); optimizer.zero_grad()
            if __name__ == "__main__":
                mp.set_start_method("spawn")
                both = [mp.Process(target=work, args=(rank,)) for rank in range(2)]
                for one in both: one.start()
                for one in both: one.join()
            """
        found = json.loads(self.run_it("--json", "--gpus", "sim:1x2GiB", program=program, code=2).stdout)
        self.assertFalse(found["fits"])
        self.assertEqual(sum(one["peak"]["process_bytes"] for one in found["cards"]), 2 * 2**30 - found["spare_bytes"])
        self.assertIn("several processes share GPU 0", found["notes"][0])
        one_by_one = program.replace("for one in both: one.start()", "").replace(
            "one.join()", "one.start(); one.join()")
        self.assertTrue(json.loads(self.run_it("--json", "--gpus", "sim:1x2GiB", program=one_by_one).stdout)["fits"])

    def test_backward_passes_before_the_optimizer_are_no_steps(self):
        program = """
            import torch
            net = torch.nn.Linear(512, 512).cuda()
            for rows in (16, 32, 64, 128, 256):
                net(torch.randn(rows, 512, device="cuda")).sum().backward(); net.zero_grad()
            optimizer = torch.optim.Adam(net.parameters())
            for step in range(9):
                net(torch.randn(4096 << step, 512, device="cuda")).sum().backward()
                optimizer.step(); optimizer.zero_grad(); print("step", step)
            """
        done = self.run_it("--json", "--gpus", "sim:1xH100", program=program)
        found = json.loads(done.stdout)
        self.assertEqual((found["steps"], done.stderr.count("step ")), (3, 2))  # the third ended in step()
        self.assertGreaterEqual(found["at_peak"]["optimizer_bytes"], 2 * 512 * 513 * 4)
        self.assertTrue(any("the peak grew" in note for note in found["notes"]), found["notes"])

    def test_a_second_run_reads_its_input_again(self):
        program = """
            import sys, torch
            wide = int(sys.stdin.readline())
            net = torch.nn.Linear(wide, wide).cuda()
            net(torch.ones(2, wide).cuda()).sum().backward()
            """
        (self.folder / "input").write_text("16384\n")
        (self.folder / "train.py").write_text(textwrap.dedent(program))
        with open(self.folder / "input", encoding="utf-8") as given:
            done = subprocess.run([programs.HEADROOM, "rehearse", "--json", "--gpus", "sim:1x1536MiB", "--",
                                   sys.executable, "train.py"], stdin=given, capture_output=True, text=True,
                                  env=programs.environment(), cwd=self.folder, timeout=600, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertGreater(json.loads(done.stdout)["peak"]["requested_bytes"], 2 * 4 * 16384**2)

    def test_what_reaches_for_a_driver_is_left_out_or_refused(self):
        program = """
            import torch
            from torch.profiler import ProfilerActivity, profile
            from torch.nn.attention.flex_attention import flex_attention
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
                torch.ones(3, device="cuda") + 1
            x = torch.randn(1, 2, 128, 64, device="cuda")
            try:
                flex_attention(x, x, x)
            except RuntimeError as error:
                print(error)
            """
        done = self.run_it("--gpus", "sim:1xH100", program=program)
        self.assertIn("flex_attention is a kernel", done.stdout)
        self.assertNotIn("driver", done.stderr)
        saved = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "sim:1xH100", "--", sys.executable, "-m",
                                "jupyter", "execute", "--inplace", "a.ipynb"], capture_output=True, text=True,
                               env=programs.environment(), cwd=self.folder, check=False)
        self.assertIn("--inplace would write into the notebook", saved.stderr)

    def test_a_notebook(self):
        try:
            import IPython
        except ImportError:
            self.skipTest("needs IPython")
        program = """
            from IPython.core.interactiveshell import InteractiveShell
            cells = ["import torch; net = torch.nn.Linear(64, 64).cuda(); optimizer = torch.optim.SGD(net.parameters())",
                     "for _ in range(9):\\n    net(torch.ones(2, 64).cuda()).sum().backward()\\n    optimizer.step()",
                     "print('a later cell')", "1 / 0"]
            shell = InteractiveShell.instance()
            ends = [shell.run_cell(cell, store_history=True).success for cell in cells]
            print("cells", ends)
            """
        done = self.run_it("--gpus", "sim:1xH100", program=program)
        self.assertIn("cells [True, True, True, True]", done.stdout)
        self.assertNotIn("a later cell", done.stdout)
        self.assertIn("The peak is in cell 2:", done.stdout)
        self.assertIn("Rehearsed 3 steps", done.stdout)

    def test_a_script_that_divides_by_a_loss_is_told_of_values(self):
        program = """
            import torch
            net = torch.nn.Linear(64, 64).cuda()
            loss = net(torch.randn(2, 64, device="cuda")).square().sum()
            loss.backward()
            print(1 / loss.item())
            """
        done = self.run_it("--gpus", "sim:1xH100", program=program, code=1)
        self.assertIn("ZeroDivisionError", done.stderr)
        self.assertIn("--mode compute", done.stderr)
        self.run_it("--gpus", "sim:1xH100", "--mode", "compute", program=program)

    def test_gradients_of_shards_count_as_gradients(self):
        program = """
            import torch, torch.distributed as dist
            from torch.distributed.fsdp import fully_shard
            dist.init_process_group("nccl")
            net = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)]).cuda()
            for part in net:
                fully_shard(part)
            fully_shard(net)
            optimizer = torch.optim.AdamW(net.parameters())
            for _ in range(9):
                net(torch.randn(8, 256, device="cuda")).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            """
        found = json.loads(self.run_it("--json", "--gpus", "sim:2xH100", "--ranks", "2", program=program).stdout)
        parameters = found["at_peak"]["parameters_bytes"]
        self.assertGreaterEqual(parameters, 4 * 257 * 256 * 4 // 2)
        self.assertGreaterEqual(found["at_peak"]["gradients_bytes"], 0.4 * parameters)  # in the backward pass

    def test_events_are_exported(self):
        self.run_it("--gpus", "sim:1xH100", "--trace", "steps.trace", "--snapshot", "steps.pickle", "--html", "page.html")
        with open(os.path.join(self.folder, "page.html"), encoding="utf-8") as page:
            self.assertIn(".py:", page.read(), "the page knows the lines of the script")
        for file in ("steps.trace", "steps.pickle"):
            done = subprocess.run([programs.HEADROOM, "trace", "top", file], capture_output=True, text=True,
                                  cwd=self.folder, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_does_not_fit_is_seen_on_the_page(self):
        self.run_it("--gpus", "sim:1x1MiB", "--html", "page.html", "--trace", "steps.trace", code=2)
        page = (self.folder / "page.html").read_text(encoding="utf-8")
        self.assertIn(f'"capacity_bytes":{1 << 20}', page)
        self.assertGreater(int(re.search('"reserved_bytes":([0-9]+)', page)[1]), 1 << 20, "a run without a limit")
        self.assertIn('["card","Simulated GPU 1.0 MiB"]', page)

    def test_the_script_is_not_written_over(self):
        before = TRAIN
        (self.folder / "train.py").write_text(before)
        for option, dashes in (("--trace", ["--"]), ("--html", ["--"]), ("--snapshot", ["--"]), ("--html", [])):
            done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "H100", option, "train.py", *dashes,
                                   sys.executable, "train.py"], capture_output=True, text=True, cwd=self.folder,
                                  env=programs.environment(), check=False)
            self.assertEqual(done.returncode, 64, done.stderr)
        self.assertEqual((self.folder / "train.py").read_text(), before)

    def test_models_of_one_class_are_told_apart(self):
        program = """
            import torch
            nets = [torch.nn.Sequential(torch.nn.Linear(64, width)).cuda() for width in (64, 512)]
            optimizer = torch.optim.SGD([one for net in nets for one in net.parameters()], lr=1)
            for _ in range(9):
                sum(net(torch.randn(8, 64, device="cuda")).sum() for net in nets).backward()
                optimizer.step(); optimizer.zero_grad()
            """
        found = json.loads(self.run_it("--json", "--gpus", "H100", program=program).stdout)
        self.assertLessEqual({"Sequential", "Sequential#2", "Sequential#2.0"}, {one["name"] for one in found["by_module"]})

    def test_ranks(self):
        program = """
            import os, torch, torch.distributed as dist
            dist.init_process_group("nccl")
            print("rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
            net = torch.nn.parallel.DistributedDataParallel(
                torch.nn.Linear(64, 64).cuda(int(os.environ["LOCAL_RANK"])))
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                net(torch.ones(2, 64).cuda(int(os.environ["LOCAL_RANK"]))).sum().backward()
                optimizer.step()
            """
        torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
        self.assertIn("rank 0 of 64", self.run_it("--gpus", "H100", "--ranks", "64", program=program).stdout)
        one = self.run_it("--gpus", "sim:2xH100", program=program, start=torchrun)
        self.assertIn("rank 0 of 2", one.stdout)
        self.assertNotIn("rank 1", one.stdout)
        both = self.run_it("--json", "--gpus", "sim:2xH100", "--all-ranks", program=program, start=torchrun)
        self.assertEqual([(card["rank"], card["index"]) for card in json.loads(both.stdout)["cards"]],
                         [(0, 0), (1, 1)])

    def test_visible_devices_choose_among_the_cards(self):
        program = """
            import os, torch
            print(os.environ["CUDA_VISIBLE_DEVICES"], torch.cuda.device_count(),
                  torch.cuda.get_device_properties(0).total_memory >> 30)
            torch.ones(8, device="cuda")
            """
        done = self.run_it("--gpus", "sim:1x24GiB,1x80GiB", program=program,
                           start=("env", "CUDA_VISIBLE_DEVICES=1", sys.executable))
        self.assertIn("1 1 80", done.stdout)

    def test_spawned_ranks_are_one(self):
        program = """
            import torch, torch.distributed as dist, torch.multiprocessing as mp
            def main(rank, world):
                dist.init_process_group("nccl", rank=rank, world_size=world, init_method="tcp://127.0.0.1:1")
                print("rank", rank, "of", dist.get_world_size())
                net = torch.nn.Linear(64, 64).cuda(rank)
                optimizer = torch.optim.SGD(net.parameters(), lr=1)
                for _ in range(9):
                    net(torch.ones(2, 64).cuda(rank)).sum().backward(); optimizer.step()
            if __name__ == "__main__":
                mp.spawn(main, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
            """
        done = self.run_it("--gpus", "sim:4xH100", program=program)
        self.assertIn("rank 0 of 4", done.stdout)

    def test_an_out_of_memory_that_the_script_handles(self):
        program = """
            import torch
            net = torch.nn.Linear(1024, 1024).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            rows = 1 << 20
            while True:
                try:
                    net(torch.ones(rows, 1024, device="cuda")).sum().backward()
                    optimizer.step()
                except torch.cuda.OutOfMemoryError:
                    rows //= 2
                    torch.cuda.empty_cache()
            """
        found = json.loads(self.run_it("--json", "--gpus", "sim:1x2GiB", program=program).stdout)
        self.assertTrue(found["fits"])
        self.assertGreater(found["ooms_met"], 0)
        self.assertEqual(found["steps"], 3)

    def test_weights_that_are_missing(self):
        program = """
            import json, os, torch
            from transformers import AutoModelForCausalLM
            os.makedirs("big", exist_ok=True)
            json.dump({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "vocab_size": 32000,
                       "num_hidden_layers": 32, "num_attention_heads": 32, "torch_dtype": "bfloat16",
                       "architectures": ["LlamaForCausalLM"]}, open("big/config.json", "w"))
            model = AutoModelForCausalLM.from_pretrained("big", torch_dtype=torch.bfloat16).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=1)
            ids = torch.ones(1, 128, dtype=torch.long).cuda()
            for _ in range(9):
                model(input_ids=ids, labels=ids).loss.backward(); optimizer.step()
            """
        found = json.loads(self.run_it("--json", "--gpus", "H200", program=program).stdout)
        self.assertEqual(found["stood_in"], ["big"])
        self.assertEqual(found["at_peak"]["parameters_bytes"], 2 * found["model"]["parameters"])
        self.assertGreater(found["model"]["parameters"], 6e9)

    def test_what_is_refused(self):
        for options, words, code in (
                (("--gpus", "sim:1x24GiB", "--steps", "0"), "--steps", 64),
                (("--gpus", "nonsense"), "nonsense", 64),
                (("--gpus", "H100", "--keep-writes"), "--mode compute", 64),
                (("--gpus", "H100", "--fit"), "--map", 64),
                (("--gpus", "H100", "--ranks", "2", "--all-ranks"), "both", 64),
                (("--gpus", "H100", "--trace", "/nonexistent/a.trace"), "no folder", 73),
                (("--gpus", "H100", "--mode", "fast"), "--mode", 64)):
            self.assertIn(words, self.run_it(*options, code=code).stderr)
        done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "H100", "--", "/nonexistent"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent", done.stderr)
        self.assertIn("without using a card",
                      self.run_it("--gpus", "H100", program="import torch; torch.ones(2)", code=1).stderr)

    def test_ctrl_c_ends_it(self):
        (self.folder / "train.py").write_text(
            TRAIN.replace("optimizer.zero_grad()", "optimizer.zero_grad(); print('stepped', flush=True); "
                          "import time; time.sleep(600)"))
        run = subprocess.Popen([programs.HEADROOM, "rehearse", "--gpus", "H100", "--", sys.executable, "train.py"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder,
                               env=programs.environment())
        self.assertIn("stepped", run.stdout.readline())
        run.send_signal(signal.SIGINT)
        out, errors = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 130, errors)
        self.assertIn("Peak", out)  # of what it did before


if __name__ == "__main__":
    unittest.main()
