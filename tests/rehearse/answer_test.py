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
        self.assertIn("still before the first step\n", done.stdout)
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
        self.assertIn("--assume-true 0,1 shows how much", text)

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

    def test_a_package_beside_the_script_is_named(self):
        """A line of a package elsewhere, installed for editing, was a bare `mlp.py:3`, as if it were the script's."""
        package = self.folder / "elsewhere" / "nets" / "layers"
        package.mkdir(parents=True)
        for one in (package, package.parent): (one / "__init__.py").write_text("")
        (package / "mlp.py").write_text("import torch\ndef make():\n    return torch.nn.Linear(2048, 2048).cuda()\n")
        work = self.folder / "work"
        work.mkdir()
        (work / "train.py").write_text(textwrap.dedent("""
            import sys
            sys.path.append("../elsewhere")
            from nets.layers.mlp import make
            net = make()
            """))
        done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "H100", "--", sys.executable, "train.py"],
                              capture_output=True, text=True, timeout=600, env=programs.environment(), cwd=work, check=False)
        self.assertIn("nets/layers/mlp.py:3\n", done.stdout)

    def test_the_command_of_an_installed_trainer(self):
        """Its lines were those of the few that pip wrote into the command: `trainer:4`."""
        package = self.folder / "site-packages" / "trainer"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        command = self.folder / "bin" / "trainer"
        command.parent.mkdir()
        command.write_text("import sys\nfrom trainer.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
        (package / "main.py").write_text(textwrap.dedent(f"""
            import torch
            from headroom.rehearsal import lines
            lines._SCRIPTS = {str(command.parent.resolve()) + "/"!r}
            def main(): net = torch.nn.Linear(2048, 2048).cuda()
            """))
        text = self.rehearsed("", start=("bin/trainer",)).stdout
        self.assertIn("trainer/main.py:5\n", text)
        self.assertNotIn("  trainer:4\n", text)

    def test_an_update_by_hand_has_no_steps(self):
        """word_language_model's default: the answer said "no optimizer stepped", "Peaks: step 1", an optimizer's phase
        and "Rehearsed 0 steps" of 100 iterations."""
        program = """
            import torch
            net = torch.nn.Linear(1024, 1024).cuda()
            for _ in range(1000):
                net.zero_grad()
                net(torch.randn(8, 1024, device="cuda")).sum().backward()
                for one in net.parameters(): one.data.add_(one.grad * 2, alpha=-1)
            """
        text = " ".join(self.rehearsed(program).stdout.split())
        self.assertIn("note: stopped after 100 backward passes; no optimizer of torch.optim stepped, and the phase "
                      "optimizer is the script's own update", text)
        self.assertIn("Peak in optimizer W workspaces", text)
        self.assertIn("Rehearsed 100 backward passes in", text)
        self.assertNotIn("step 1", text)
        found = json.loads(self.rehearsed(program, "--json").stdout)
        self.assertEqual((found["steps"], found["backward_passes"], found["peak"]["step"]), (0, 100, 0))

    def test_tensors_for_another_process_are_refused(self):
        """mnist_hogwild ended with "_share_cuda_: only available on CUDA", as if the script were wrong."""
        done = self.rehearsed("""
            import torch, torch.multiprocessing as mp
            def train(net): pass
            if __name__ == "__main__":
                net = torch.nn.Linear(64, 64).cuda().share_memory()
                mp.get_context("spawn").Process(target=train, args=(net,)).start()
            """, code=1)
        self.assertIn("UnavailableError: [as_cuda] tensors of a simulated card cannot be given to another process; try",
                      done.stderr)

    def test_a_failure_is_told_before_the_figures(self):
        """The headline said "failed, with 23.20 GiB to spare", and 25 lines of figures stood between the script's error
        and what Headroom says of it."""
        (self.folder / "train.py").write_text(
            "import torch\nnet = torch.nn.Linear(512, 512).cuda()\nraise ValueError('mine')\n")
        done = subprocess.run([programs.HEADROOM, "rehearse", "--gpus", "H100", "--", sys.executable, "train.py"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
                              env=programs.environment(), cwd=self.folder, check=False)
        self.assertIn("ValueError: mine\nheadroom: the script failed (exit code 1); the figures cover only what it did before\n",
                      done.stdout)
        self.assertIn("failed, having used at most", done.stdout)
        self.assertNotIn("to spare", done.stdout)

    def test_modules_that_differ_are_not_each_of_a_kind(self):
        """"(each of 3)" was printed with the figure of the largest."""
        program = """
            import torch
            net = torch.nn.Sequential(*(torch.nn.Linear(512, {out}) for one in range(3))).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                sum(part(torch.randn(64, 512, device="cuda")).sum() for part in net).backward()
                optimizer.step(); optimizer.zero_grad()
            """
        self.assertIn("  (each of 3)\n", self.rehearsed(program.format(out="512")).stdout)
        self.assertIn("  (the largest of 3)\n", self.rehearsed(program.format(out="512 * (1 + one)")).stdout)

    def test_a_launcher_of_one_rank_pretends_none(self):
        done = self.rehearsed("print('runs'); import torch; torch.ones(9, device='cuda')",
                              start=("-m", "torch.distributed.run", "--nproc-per-node=1", "train.py"))
        self.assertIn("runs", done.stdout)
        self.assertNotIn("pretended", done.stderr)

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
        self.assertIn("Largest batch", done.stdout)
        self.assertIn("iB  does not fit", done.stdout)

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
