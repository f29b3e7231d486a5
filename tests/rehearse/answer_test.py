"""What a rehearsal answers, and says while it runs."""
import json
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

import programs


class Rehearsed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def rehearsed(self, program, *options, code=0, start=("train.py",)):
        (self.folder / "train.py").write_text(textwrap.dedent(program))
        environment = {**programs.environment(), "PYTHONPATH": str(self.folder / "site-packages")}
        done = subprocess.run([programs.HEADROOM, "rehearse", *options, "--gpus", "sim:2xH100", "--", sys.executable,
                               *start], capture_output=True, text=True, timeout=600, env=environment, cwd=self.folder,
                              check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done


class Answer(Rehearsed):
    def test_the_headline_counts_what_is_on_a_card_and_what_is_stepped(self):
        """nanochat makes larger models on meta for its scaling law, and DiT runs a VAE whose weights require
        gradients: the headline called 144.5 M parameters what were 11.2 M, and "trained" what never was."""
        program = """
            import torch
            law = torch.nn.Linear(3000, 3000, device="meta")
            on_the_cpu = torch.nn.Linear(100, 100)
            encoder = torch.nn.Linear(256, 256).cuda()
            net = torch.nn.Linear(90, 100).cuda()
            optimizer, unused = (torch.optim.SGD(one.parameters(), lr=1) for one in (net, encoder))
            for _ in range(9):
                with torch.no_grad(): encoder(torch.ones(1, 256, device="cuda"))
                net(torch.randn(8, 90, device="cuda")).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            """
        model = json.loads(self.rehearsed(program, "--json").stdout)["model"]
        self.assertEqual((model["parameters"], model["trainable_parameters"]), (256 * 257 + 91 * 100, 91 * 100))
        text = self.rehearsed(program).stdout
        self.assertIn("train.py\n74.9 k parameters, 9.1 k of them trained (12 %)\n", text)

    def test_a_script_that_fails_before_it_uses_a_card_tells_what_it_wrote(self):
        done = self.rehearsed("""
            import torch
            open("settings.json", "w").write("{}")
            raise SystemExit(3)
            """, code=1)
        self.assertIn("the script wrote settings.json", done.stderr)

    def test_weights_count_as_parameters_before_a_first_step(self):
        done = self.rehearsed("""
            import torch
            net = torch.nn.Linear(512, 512).cuda()
            raise ValueError("mine")
            """, "--json", code=1)
        self.assertEqual(json.loads(done.stdout)["at_peak"]["parameters_bytes"], 4 * 512 * 513)

    def test_the_buckets_of_ddp_are_gradients(self):
        program = """
            import torch, torch.distributed as dist
            dist.init_process_group("nccl")
            net = torch.nn.Linear(512, 512).cuda()
            net = torch.nn.parallel.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                net(torch.randn(8, 512, device="cuda")).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            """
        parts = json.loads(self.rehearsed(program, "--json", "--ranks", "2").stdout)["at_peak"]
        self.assertEqual(parts["gradients_bytes"], 2 * 4 * 512 * 513)  # with the buckets
        self.assertLess(parts["inputs_bytes"], 4 * 512 * 512)

    def test_a_long_step_says_how_far_it_is(self):
        """A trainer that sampled 1,024 tokens after its first step was silent for two minutes."""
        done = self.rehearsed("""
            import gc, torch
            from headroom.rehearsal.watch import Watch
            net = torch.nn.Sequential(torch.nn.Linear(8, 8)).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            watch = next(one for one in gc.get_objects() if isinstance(one, Watch))
            print(watch.progress())
            net(torch.ones(2, 8, device="cuda")).sum().backward(); optimizer.step()
            with torch.no_grad():
                for _ in range(1024): net(torch.ones(2, 8, device="cuda"))
            print(watch.progress())
            """)
        self.assertIn("still in what comes before the first step\n", done.stdout)
        self.assertIn("still in step 2: 1,024 forward passes under no_grad\n", done.stdout)

    def test_what_comes_after_the_last_step_is_no_step(self):
        program = """
            import torch
            net = torch.nn.Linear(512, 512).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(3):
                net(torch.randn(8, 512, device="cuda")).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            torch.ones(1 << 20, device="cuda")
            """
        text = self.rehearsed(program, "--steps", "9").stdout
        self.assertIn("after them", text)
        self.assertNotIn("step 4", text)

    def test_assumptions_are_told_by_kind(self):
        program = """
            import torch
            net = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                y = net(torch.randn(512, 64, device="cuda"))
                loss = y[y > 0].sum()
                loss = loss + y.masked_select(y > 1).sum()
                loss.backward()
                optimizer.step(); optimizer.zero_grad()
            """
        text = " ".join(self.rehearsed(program).stdout.split())
        self.assertEqual(text.count("of the mask is true"), 1)
        self.assertIn("(6 times, most often index.Tensor in train.py:7)", text)
        self.assertIn("--assume-true 0,1 tells how much", text)

    def test_an_installed_trainer_has_lines_too(self):
        package = self.folder / "site-packages" / "trainer"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "main.py").write_text(textwrap.dedent("""
            import torch
            net = torch.nn.Linear(64, 64).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                net(torch.randn(512, 64, device="cuda")).sum().backward()
                optimizer.step()
            """))
        text = self.rehearsed("", start=("-m", "trainer.main")).stdout
        self.assertIn("The peak is in trainer/main.py:6", text)

    def test_a_search_is_quiet(self):
        program = """
            import sys, torch
            net = torch.nn.Linear(1024, 1024).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                net(torch.randn(int(sys.argv[1]), 1024, device="cuda")).sum().backward()
                optimizer.step()
            """
        (self.folder / "train.py").write_text(textwrap.dedent(program))
        done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "sim:1x64MiB", "--fit", "--map", "env:ROWS=batch",
                               "--", "sh", "-c", f'exec "{sys.executable}" train.py $ROWS'], capture_output=True,
                              text=True, timeout=600, env={**programs.environment(), "ROWS": "65536"}, cwd=self.folder,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertIn("too much", done.stdout)
        self.assertIn("to spare", done.stdout)

    def test_mistakes_are_answered_with_what_was_meant(self):
        for options, words in ((("--fit",), "expected --map beside it"), (("--map", "-b=batch"), "expected --fit beside it")):
            self.assertIn(words, self.rehearsed("", *options, code=64).stderr)
        done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "sim:1x4", "--", "true"], capture_output=True,
                              text=True, check=False)
        self.assertIn("try sim:1x4GiB", done.stderr)


MODELS = """
    import json, os, torch
    {make}
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    for _ in range(9):
        net({inputs}).sum().backward() if not {diffuses} else net({inputs}).sample.sum().backward()
        optimizer.step()
    """


class Missing(Rehearsed):
    """Weights that are not there."""

    def check(self, make, inputs, name, diffuses=False):
        program = MODELS.format(make=make, inputs=inputs, diffuses=diffuses)
        found = json.loads(self.rehearsed(program, "--json").stdout)
        self.assertEqual(found["stood_in"], [name])
        self.assertEqual(found["at_peak"]["parameters_bytes"], 4 * found["model"]["parameters"])

    def test_of_diffusers(self):
        """DiT's AutoencoderKL.from_pretrained with a folder that has only config.json ended with OSError."""
        try:
            import diffusers
        except ImportError:
            self.skipTest("needs diffusers")
        (self.folder / "vae" / "part").mkdir(parents=True)
        (self.folder / "vae" / "part" / "config.json").write_text(json.dumps(
            {"_class_name": "AutoencoderKL", "block_out_channels": [32, 64], "down_block_types": ["DownEncoderBlock2D"] * 2,
             "up_block_types": ["UpDecoderBlock2D"] * 2, "latent_channels": 4, "norm_num_groups": 8}))
        self.check('from diffusers.models import AutoencoderKL; '
                   'net = AutoencoderKL.from_pretrained("vae", subfolder="part").to("cuda")',
                   'torch.randn(1, 3, 32, 32, device="cuda")', "vae/part", diffuses=True)

    def test_of_the_hub(self):
        try:
            import huggingface_hub
        except ImportError:
            self.skipTest("needs huggingface_hub")
        (self.folder / "own").mkdir()
        (self.folder / "own" / "config.json").write_text('{"wide": 300}')
        self.check("from huggingface_hub import PyTorchModelHubMixin\n"
                   "    class Own(torch.nn.Module, PyTorchModelHubMixin):\n"
                   "        def __init__(self, wide): super().__init__(); self.part = torch.nn.Linear(wide, 9)\n"
                   "        def forward(self, x): return self.part(x)\n"
                   '    net = Own.from_pretrained("own").cuda()', 'torch.randn(1, 300, device="cuda")', "own")

    def test_by_their_address(self):
        self.check('net = torch.nn.Linear(64, 64); '
                   'net.load_state_dict(torch.hub.load_state_dict_from_url("http://127.0.0.1:9/weights.pth")); net.cuda()',
                   'torch.randn(1, 64, device="cuda")', "http://127.0.0.1:9/weights.pth")


if __name__ == "__main__":
    unittest.main()
