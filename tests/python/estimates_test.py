"""Will it fit? Estimates and the largest batch, as a notebook asks for them."""
import concurrent.futures
import copy
import pathlib
import pickle
import signal
import tempfile
import traceback
import unittest

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import headroom
from face_test import GIB, Net


class Estimates(unittest.TestCase):
    def test_a_model_on_the_cpu_is_not_touched(self):
        net = Net()
        before = {name: value.clone() for name, value in net.state_dict().items()}
        report = headroom.estimate(net, torch.ones(64, 256), gpu="RTX 4090")
        self.assertTrue(report.fits)
        for name, value in net.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]))
            self.assertEqual(value.device.type, "cpu")
        self.assertIsNone(net.first.weight.grad)
        self.assertIn("Peak", str(report))

    def test_a_function_makes_a_model_of_any_size(self):
        report = headroom.estimate(lambda: nn.Linear(200_000, 200_000), torch.ones(1, 200_000),
                                   gpu="H100")
        self.assertFalse(report.fits)
        self.assertGreater(report.peak.allocated, 3 * 4 * 200_000**2)
        self.assertIsNotNone(report.out_of_memory)

    def test_shared_parameters_stay_shared(self):
        net = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
        net[1].weight = net[0].weight
        parts = headroom.estimate(net, torch.ones(8, 512)).at_peak
        self.assertEqual(parts.parameters, 4 * (512 * 512 + 2 * 512))

    def test_a_head_that_shares_the_embeddings_weight_has_its_own_name(self):
        """Its logits were the embedding's, and under autocast those of the module before."""
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.norm = nn.Embedding(4096, 64), nn.LayerNorm(64)
                self.head = nn.Linear(64, 4096, bias=False)
                self.head.weight = self.embedding.weight

            def forward(self, tokens):
                return self.head(self.norm(self.embedding(tokens)))

        for precision in (None, "amp_bf16"):
            report = headroom.estimate(Tied(), torch.zeros(8, 128, dtype=torch.long), precision=precision)
            modules = {one.name: one.peak for one in report.by_module}
            self.assertGreater(modules["head"], 8 * 128 * 4096 * 2)
            self.assertLess(modules["norm"], modules["head"] / 4)
            self.assertIn("parameter in embedding", str(report))
            self.assertEqual(report.at_peak.parameters, 4 * (4096 * 64 + 2 * 64))

    def test_frozen_weights_have_no_gradients(self):
        net = Net()
        net.first.requires_grad_(False)
        parts = headroom.estimate(net, torch.ones(8, 256)).at_peak
        self.assertEqual(parts.gradients, 4 * (256 * 1024 + 256))

    def test_batches_of_all_kinds(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = Net()

            def forward(self, x, scale=1):
                return {"loss": (self.net(x) * scale).mean()}
        x = torch.ones(8, 256)
        peaks = {headroom.estimate(Two(), batch).peak.allocated
                 for batch in (x, (x,), {"x": x}, lambda: {"x": torch.ones(8, 256)})}
        self.assertEqual(len(peaks), 1)

    def test_optimizers(self):
        net, x = Net(), torch.ones(8, 256)
        sgd = headroom.estimate(net, x, optimizer="sgd").peak.allocated
        adam = headroom.estimate(net, x, optimizer="adam").peak.allocated
        own = headroom.estimate(net, x, optimizer=torch.optim.Adam(net.parameters(), lr=3)).peak
        self.assertLess(sgd, adam)
        self.assertEqual(own.allocated, adam)
        with self.assertRaisesRegex(headroom.UsageError, "sgd-momentum"):
            headroom.estimate(net, x, optimizer="adamx")

    def test_a_loss_beside_what_it_is_made_of(self):
        """nanoGPT's `return logits, loss` was trained by the mean of its logits, which needs less."""
        class Net(nn.Module):
            def __init__(self, learned_scale):
                super().__init__()
                self.head, self.learned_scale = nn.Linear(64, 5000), learned_scale
                self.scale = nn.Parameter(torch.ones(()))

            def forward(self, x, targets):
                logits = self.head(x)
                loss = nn.functional.cross_entropy(logits.view(-1, 5000), targets.view(-1))
                return (logits, self.scale.exp()) if self.learned_scale else (logits, loss)

        def peak(learned_scale, **loss):
            batch = torch.randn(8, 32, 64), torch.zeros(8, 32, dtype=torch.long)
            return headroom.estimate(Net(learned_scale), batch, **loss).peak
        self.assertEqual(peak(False), peak(False, loss=lambda net, batch: net(*batch)[1]))
        self.assertEqual(peak(True), peak(True, loss=lambda net, batch: net(*batch)[0].mean()))
        self.assertNotEqual(peak(False), peak(True))

    def test_precisions(self):
        net, x = Net(2048), torch.ones(8, 2048)
        peak = {one: headroom.estimate(net, x.to(torch.bfloat16) if one == "bf16" else x,
                                       precision=one).at_peak.parameters
                for one in ("fp32", "bf16", "amp_bf16")}
        self.assertEqual(peak["fp32"], 2 * peak["bf16"])
        self.assertEqual(peak["fp32"], peak["amp_bf16"])
        for name in (torch.bfloat16, "bfloat16", "torch.bfloat16"):
            self.assertEqual(headroom.estimate(net, x, precision=name).at_peak.parameters, peak["bf16"])

    def test_cards_as_the_command_line_names_them(self):
        """The message for gpu="24" said "try sim:8x24GiB", and gpu="sim:24GiB" was no GPU of the catalogue."""
        net, x = Net(), torch.ones(8, 256)
        self.assertEqual(headroom.estimate(net, x, gpu="sim:24GiB").peak,
                         headroom.estimate(net, x, gpu="24GiB").peak)
        with headroom.simulate("sim:2x24GiB") as box:
            self.assertEqual(len(box), 2)
        for wrong in (lambda: headroom.simulate(24), lambda: headroom.estimate(net, x, gpu=24)):
            with self.assertRaisesRegex(headroom.UsageError, "24GiB.*received '24'"):
                wrong()
        with self.assertRaisesRegex(headroom.UsageError, "device=\"cuda:0\""):
            headroom.estimate(net, x, gpu="cuda:0")

    def test_the_largest_batch(self):
        make = lambda n: torch.ones(n, 256)  # noqa: E731
        found = headroom.find_max_batch_size(Net(), make, gpu="1GiB", max_batch=10**6)
        self.assertTrue(found.proven)
        self.assertTrue(headroom.estimate(Net(), make(found), gpu="1GiB").fits)
        self.assertFalse(headroom.estimate(Net(), make(found + 1), gpu="1GiB").fits)
        self.assertEqual(found.recommended, int(0.9 * found))
        self.assertEqual(headroom.get_optimal_batch_size(Net(), make, gpu="1GiB", max_batch=10**6),
                         found.recommended)
        capped = headroom.find_max_batch_size(Net(), make, gpu="24GiB", max_batch=16)
        self.assertTrue(capped.capped)
        self.assertEqual(capped.recommended, 16)  # it was less, though nothing was near full

    def test_familiar_keys(self):
        class Tokens(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding = nn.Embedding(1000, 64)
                self.head = nn.Linear(64, 1000)

            def forward(self, ids):
                return self.head(self.embedding(ids))
        found = headroom.estimate_training_memory(Tokens(), 8, seq_length=128, optimizer="adam")
        self.assertEqual(set(found), {"total_gb", "params_gb", "grads_gb", "optimizer_gb",
                                      "activations_gb", "total_params", "trainable_params"})
        self.assertEqual(found["total_params"], 1000 * 64 + 64 * 1000 + 1000)
        self.assertAlmostEqual(found["params_gb"], 4 * found["total_params"] / 1e9)
        self.assertAlmostEqual(found["optimizer_gb"], 2 * found["params_gb"], places=6)
        self.assertAlmostEqual(sum(found[key] for key in ("params_gb", "grads_gb", "optimizer_gb",
                                                          "activations_gb")), found["total_gb"])
        with self.assertRaisesRegex(headroom.UsageError, "create_batch_fn"):
            headroom.estimate_training_memory(Net(), 8)
        with_batch = headroom.estimate_training_memory(
            Net(), 8, create_batch_fn=lambda n: torch.ones(n, 256))
        self.assertGreater(with_batch["total_gb"], 0)

    def test_what_the_step_raises_comes_through(self):
        def loss(model, batch):
            raise KeyError("labels")
        with self.assertRaisesRegex(KeyError, "labels"):
            headroom.estimate(Net(), torch.ones(8, 256), loss=loss)

    def test_the_traceback_is_the_users_own(self):
        def loss(model, batch):
            raise KeyError("labels")
        try:
            headroom.estimate(Net(), torch.ones(8, 256), loss=loss)
        except KeyError:
            self.assertIn('raise KeyError("labels")', traceback.format_exc())
        else:
            self.fail("nothing came through")

    def test_ctrl_c_in_the_middle(self):
        def loss(model, batch):
            signal.raise_signal(signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt):
            headroom.estimate(Net(), torch.ones(8, 256), loss=loss)
        self.assertTrue(headroom.estimate(Net(), torch.ones(8, 256)).fits)

    def test_threads_take_turns(self):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            reports = list(pool.map(lambda _: headroom.estimate(Net(), torch.ones(8, 256)), range(8)))
        self.assertEqual(len({report.peak for report in reports}), 1)

    def test_copies_of_results(self):
        report = headroom.estimate(Net(), torch.ones(8, 256), gpu="RTX 4090", trace=True)
        found = headroom.find_max_batch_size(Net(), lambda n: torch.ones(n, 256), gpu="RTX 4090")
        for copied in (lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy, copy.copy):
            self.assertEqual(copied(report).document(), report.document())
            self.assertEqual(str(copied(report)), str(report))
            self.assertEqual((copied(found), vars(copied(found))), (found, vars(found)))
            with self.assertRaisesRegex(headroom.UsageError, "received a copy"):
                copied(report).write_trace("never.hrtrace")
        self.assertEqual((f"{found}", repr(found)[:14]), (f"{int(found)}", "<MaxBatch: 512"))

    def test_a_report_is_a_page(self):
        report = headroom.estimate(Net(), torch.ones(8, 256), trace=True)
        with tempfile.TemporaryDirectory() as folder:
            report.save_html(pathlib.Path(folder, "step.html"), title="Net")
            page = pathlib.Path(folder, "step.html").read_text(encoding="utf-8")
        self.assertIn(f'"allocated_bytes":{int(report.peak.allocated)}', page)
        self.assertIn("<title>Net</title>", page)
        self.assertIn("srcdoc=", report._repr_html_())
        without = headroom.estimate(Net(), torch.ones(8, 256))
        self.assertIn("<pre>", without._repr_html_())
        with self.assertRaisesRegex(headroom.UsageError, "trace=True"):
            without.save_html("never.html")
        with self.assertRaises(headroom.WriteError):
            report.save_html("/nowhere/step.html")

    def test_as_much_as_is_asked_is_described(self):
        report = headroom.estimate(Net(), torch.ones(8, 256))
        for modules, tensors in ((0, 0), (1, 3), (5, 5), (100, 100)):
            self.assertEqual(report.describe(modules, tensors), report._report.describe(modules, tensors))

    def test_optimizers_take_the_loop_form_under_cpu_rules(self):
        """Only cards of a box of one's own did: an estimate's took the foreach form."""
        net, x = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))), torch.ones(8, 256)
        loop = lambda parameters: torch.optim.AdamW(parameters, foreach=False)  # noqa: E731
        peak = {(rules, form): headroom.estimate(net, x, rules=rules, optimizer=form).peak.allocated
                for rules in ("cpu", "cuda") for form in (None, loop)}
        self.assertEqual(peak["cpu", None], peak["cpu", loop])
        self.assertGreater(peak["cuda", None], peak["cuda", loop])

    def test_a_margin_in_bytes(self):
        make = lambda n: torch.ones(n, 256)  # noqa: E731
        found = headroom.find_max_batch_size(Net(), make, gpu="1GiB", max_batch=10**6, margin="512MiB")
        self.assertLess(0.4 * found, found.recommended)
        self.assertLess(found.recommended, 0.6 * found)

    def test_state_that_is_there_before_the_first_step(self):
        """Adagrad's was counted among the inputs."""
        net, x = Net(2048), torch.ones(8, 2048)
        at_peak = headroom.estimate(net, x, optimizer=torch.optim.Adagrad).at_peak
        self.assertEqual(at_peak.optimizer, at_peak.parameters)
        self.assertLess(at_peak.inputs, 1 << 20)

    def test_a_margin_in_percent(self):
        share, percent = (headroom.find_max_batch_size(Net(), lambda n: torch.ones(n, 256), gpu="1GiB",
                                                       max_batch=10**6, margin=one) for one in (0.25, "25%"))
        self.assertEqual(percent.recommended, share.recommended)
        with self.assertRaisesRegex(headroom.UsageError, "received 'a%'"):
            headroom.find_max_batch_size(Net(), lambda n: torch.ones(n, 256), gpu="1GiB", margin="a%")

    def test_a_model_on_meta(self):
        with torch.device("meta"):
            net = Net()
        report = headroom.estimate(net, torch.ones(8, 256, device="meta"))
        self.assertEqual(report.peak, headroom.estimate(Net(), torch.ones(8, 256)).peak)

    def test_wrong_arguments_are_told_in_words(self):
        net, x = Net(), torch.ones(8, 256)
        largest = lambda **more: headroom.find_max_batch_size(net, lambda n: x, **more)  # noqa: E731
        for words, call in (
                ("a card such as", lambda: headroom.estimate(net, x, gpu=24)),
                ("rules 'cuda' or 'cpu'", lambda: headroom.estimate(net, x, rules="tpu")),
                ("steps a whole number from 1", lambda: headroom.estimate(net, x, steps=0)),
                ("biggest a whole number", lambda: headroom.estimate(net, x, biggest=-1)),
                ("amp_bf16, received 'fp8'", lambda: headroom.estimate(net, x, precision="fp8")),
                ("an optimizer.*'int'", lambda: headroom.estimate(net, x, optimizer=3)),
                ("makes 'NoneType'", lambda: headroom.estimate(net, x, optimizer=lambda some: None)),
                ("parameters that are trained", lambda: headroom.estimate(nn.ReLU(), x)),
                ("a model, or a function.*'str'", lambda: headroom.estimate("gpt2", x)),
                ("loss that is a tensor", lambda: headroom.estimate(net, x, loss=lambda *_: 3)),
                ("min_batch", lambda: largest(gpu="1GiB", min_batch=-1)),
                ("max_batch", lambda: largest(gpu="1GiB", max_batch=10.5)),
                ("received both", lambda: largest(gpu="1GiB", device="cuda:0")),
                ("expected a GPU, received 'cpu'", lambda: largest()),
                ("expected a simulation", lambda: largest(device="sim:0")),
                ("makes a batch", lambda: headroom.find_max_batch_size(net, x, gpu="1GiB")),
                ("where there is no GPU", lambda: headroom.get_gpu_memory_stats(7)),
                ("expected a simulation", lambda: headroom.dry_run(lambda: None)),
                ("at least one card", lambda: headroom.select_gpus("1GiB", count=0)),
                ("no negative size", lambda: headroom.select_gpus(-1)),
                ("an exception, received 'str'", lambda: headroom.is_oom("CUDA out of memory"))):
            with self.subTest(words), self.assertRaisesRegex(headroom.UsageError, words):
                call()
        with headroom.simulate("24GiB,2GiB") as box:
            self.assertEqual(box[-1].capacity, 2 * GIB)
            with self.assertRaisesRegex(headroom.UsageError, "0 or more"):
                box[0].hold(-1)
            with self.assertRaisesRegex(IndexError, "no card 2 in a box of 2"):
                headroom.dry_run(lambda: None, device=2)
            with self.assertRaisesRegex(headroom.UsageError, "a step, a function"):
                headroom.dry_run(3)


class WeightsInParts(unittest.TestCase):
    """torchao's and bitsandbytes' quantised modules failed with an inner error of the library."""

    def test_a_wrapper_of_tensors_is_copied_part_by_part(self):
        net = nn.Linear(256, 256, bias=False)
        net.weight = nn.Parameter(TwoTensor(net.weight.data, net.weight.data.clone()), requires_grad=False)
        report = headroom.estimate(net.eval(), torch.randn(4, 256))
        self.assertEqual(report.at_peak.parameters, 2 * 256 * 256 * 4)
        self.assertEqual(net.weight.a.device.type, "cpu")

    def test_layers_that_pack_their_weights_are_refused_with_a_way_out(self):
        for name, bits in (("Linear8bitLt", "8bit"), ("Linear4bit", "4bit"), ("LinearNF4", "4bit")):
            layer = type(name, (nn.Linear,), {"__module__": "bitsandbytes.nn.modules"})
            with self.assertRaisesRegex(headroom.UsageError, f"bitsandbytes' {name}.*a function.*--quantize {bits} "):
                headroom.estimate(nn.Sequential(layer(8, 8)), torch.randn(2, 8))


class MasksOfAnyType(unittest.TestCase):
    """torchvision's Faster R-CNN ended at torch.where(mask) of bytes, whatever share was assumed."""

    def test_a_detector_of_torchvision(self):
        try:
            from torchvision.models import detection
        except ImportError:
            self.skipTest("torchvision is not here")
        model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=4)
        boxes = {"boxes": torch.tensor([[10.0, 10, 100, 120], [50, 60, 200, 220]]), "labels": torch.tensor([1, 2])}
        batch = ([torch.rand(3, 300, 400)] * 2, [boxes] * 2)
        report = headroom.estimate(model, batch, loss=lambda model, batch: sum(model(*batch).values()))
        self.assertIn("nonzero: a share of 0.5 of the mask is true", {one.what for one in report.assumptions})

    def test_its_operators(self):
        def loss(model, x):
            y = model(x)
            of_bytes = torch.where(y.max(dim=1).values > 0, 1, 0).to(torch.uint8)
            return y[torch.where(of_bytes)[0]].sum() + y[of_bytes.bool()].sum() + y[y.nonzero()[:, 0]].mean()

        for rows in (64, 300000):  # more than a card keeps values of
            report = headroom.estimate(nn.Linear(8, 8), torch.randn(rows, 8), loss=loss)
            self.assertTrue(report.fits)
        with self.assertRaises(NotImplementedError):
            headroom.estimate(nn.Linear(8, 8), torch.randn(rows, 8), loss=loss, assume=None)


if __name__ == "__main__":
    unittest.main()
