"""What people hand to an estimate: batches, optimizers, models and modes of all kinds."""
import collections
import copy
import dataclasses
import threading
import unittest

import torch
import transformers
from torch import nn

import headroom
from face_test import Net


def x_of(count=8, width=256):
    return torch.ones(count, width)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def forward(self, x):
        return self.net(x)


class Batches(unittest.TestCase):
    """A tokenizer's answer, a batch class with `.to()` and a batch of torch_geometric stayed on the CPU."""

    def test_of_all_kinds_are_moved_and_not_touched(self):
        @dataclasses.dataclass
        class Data:
            x: torch.Tensor
            more: object = dataclasses.field(default=None, init=False)

        class Changing:
            """As torch_geometric's: `to` changes it in place, and it can be called and has keys."""

            def __init__(self, x):
                self.x = x

            def to(self, device):
                self.x = self.x.to(device)
                return self

            def __call__(self):
                yield from ()

            def keys(self):
                return ["x"]

        class Answering:
            def __init__(self, x):
                self.x = x

            def to(self, device, non_blocking=False):
                return Answering(self.x.to(device, non_blocking=non_blocking))

        x = x_of()
        expected = headroom.estimate(Named(), x).peak
        for batch in (collections.UserDict(x=x), transformers.BatchEncoding({"x": x}),
                      collections.OrderedDict(x=x), collections.defaultdict(list, x=x)):
            self.assertEqual(headroom.estimate(Named(), batch).peak, expected, type(batch))
            self.assertEqual(batch["x"].device.type, "cpu")
        for batch in (Data(x), Changing(x), Answering(x)):
            report = headroom.estimate(Named(), batch, loss=lambda model, batch: model(batch.x).mean())
            self.assertEqual(report.peak, expected, type(batch))
            self.assertEqual(batch.x.device.type, "cpu")

    def test_of_a_box_are_moved_too(self):
        class Own:
            def __init__(self, x):
                self.x = x

            def to(self, device):
                return Own(self.x.to(device))

        alone = headroom.estimate(Net(), x_of()).peak
        loss = lambda model, batch: model(batch.x).mean()  # noqa: E731
        with headroom.simulate("1GiB"):
            there = headroom.estimate(Net(), Own(x_of().to("sim")), loss=loss)
        self.assertEqual(there.peak, alone)

    def test_packed_sequences(self):
        net = nn.LSTM(8, 8)
        packed = nn.utils.rnn.pack_sequence([torch.ones(3, 8), torch.ones(2, 8)])
        self.assertTrue(headroom.estimate(net, packed).fits)

    def test_are_cast_with_the_weights(self):
        """Every net of floating inputs failed with precision="bf16": its weights were cast, its batch was
        not."""
        for precision, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            for batch in (x_of(), {"x": x_of()}, lambda: (x_of(),)):
                seen = []

                def loss(model, batch, seen=seen):
                    out = batch if isinstance(batch, torch.Tensor) else \
                        next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
                    seen.append(out.dtype)
                    return model(out).mean()
                report = headroom.estimate(Net(), batch, precision=precision, loss=loss)
                self.assertEqual(set(seen), {dtype})
                self.assertEqual(report.at_peak.parameters,
                                 headroom.estimate(Net(), x_of()).at_peak.parameters // 2)
        labels = []
        headroom.estimate(nn.Embedding(10, 8), torch.zeros(4, dtype=torch.long), precision="bf16",
                          loss=lambda model, ids: labels.append(ids.dtype) or model(ids).mean())
        self.assertEqual(set(labels), {torch.long})

    def test_lengths_that_a_function_draws_are_known(self):
        """They were drawn on a card that does not draw, so every length was zero."""
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.LSTM(8, 8, batch_first=True)

            def forward(self, x, lengths):
                packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True,
                                                           enforce_sorted=False)
                return self.net(packed)[0].data

        def batch(count):
            return torch.randn(count, 20, 8), torch.randint(1, 21, (count,))
        torch.manual_seed(1)
        before = torch.get_rng_state()
        found = headroom.find_max_batch_size(Recurrent, batch, gpu="1GiB", max_batch=64)
        self.assertTrue(found.capped)
        self.assertTrue(torch.equal(torch.get_rng_state(), before))


class Optimizers(unittest.TestCase):
    def setUp(self):
        self.net = nn.Sequential(nn.Linear(512, 2048), nn.Linear(2048, 8))
        self.batch = x_of(4, 512)

    def state(self, optimizer, model=None):
        return headroom.estimate(model or self.net, self.batch, optimizer=optimizer).at_peak.optimizer

    def test_over_a_part_of_the_model_are_counted_over_that(self):
        """Another one was made over all parameters: 64.7 MiB of state in place of 0.6."""
        head = sum(one.numel() for one in self.net[1].parameters())
        state = self.state(torch.optim.Adam(self.net[1].parameters()))
        self.assertLessEqual(2 * 4 * head, state)
        self.assertLess(state, 2 * 4 * head + 4096)
        self.assertGreater(self.state(torch.optim.Adam(self.net.parameters())), 10 * state)

    def test_groups_are_kept(self):
        groups = [{"params": self.net[0].parameters(), "momentum": 0.9}, {"params": self.net[1].parameters()}]
        weights = [sum(4 * one.numel() for one in part.parameters()) for part in self.net]
        state = self.state(torch.optim.SGD(groups, lr=0.1))
        self.assertLessEqual(weights[0], state)
        self.assertLess(state, weights[0] + weights[1])
        compiled = torch.compile(self.net)
        self.assertEqual(self.state(torch.optim.SGD(groups, lr=0.1), compiled), state)

    def test_of_another_model_are_told(self):
        other = torch.optim.Adam(nn.Linear(4, 4).parameters())
        mixed = torch.optim.Adam([*self.net.parameters(), nn.Parameter(torch.ones(3))])
        for optimizer, words in ((other, "one of another model"), (mixed, "1 others among them"),
                                 (torch.optim.LBFGS(self.net.parameters()), "step\\(\\) takes nothing")):
            with self.assertRaisesRegex(headroom.UsageError, words):
                self.state(optimizer)
        twin = copy.deepcopy(self.net)
        self.assertEqual(self.state(torch.optim.Adam(twin.parameters()), lambda: copy.deepcopy(twin)),
                         self.state("adam"))

    def test_names(self):
        self.assertEqual(self.state("AdamW"), self.state(None))
        self.assertEqual(self.state("Adam"), self.state("adam"))
        self.assertEqual(self.state("none"), 0)
        eight, whole = self.state("adamw8bit"), self.state("adamw")
        self.assertLess(0.25 * whole, eight)
        self.assertLess(eight, 0.27 * whole)


class Hooks(unittest.TestCase):
    """`.to("sim")` swapped parameters for new ones, and their hooks were lost: gradients were wrong without
    a word."""

    def test_of_parameters_stay_when_modules_move(self):
        with headroom.simulate("1GiB", mode="compute"):
            for move in (lambda net: net.to("sim"), lambda net: net.to("sim").double(),
                         lambda net: net.to("sim").half().float(), lambda net: net.to("sim").cpu()):
                net, called = nn.Linear(4, 4), []
                net.weight.register_hook(lambda grad: grad * 2)
                net.weight.register_post_accumulate_grad_hook(lambda one: called.append(one.grad.clone()))
                view, weight = net.weight[0], net.weight
                move(net)
                self.assertIs(net.weight, weight)
                x = torch.ones(1, 4, device=net.weight.device, dtype=net.weight.dtype)
                net(x).sum().backward()
                self.assertEqual(net.weight.grad[0].tolist(), [2.0] * 4)
                self.assertEqual(len(called), 1)
                del view

    def test_gradients_move_along(self):
        with headroom.simulate("1GiB", mode="compute"):
            net = nn.Linear(4, 4)
            net(torch.ones(1, 4)).sum().backward()
            net.to("sim")
            self.assertEqual(net.weight.grad.device.type, "sim")
            net(torch.ones(1, 4, device="sim")).sum().backward()
            self.assertEqual(net.cpu().weight.grad[0].tolist(), [2.0] * 4)

    def test_data_may_be_replaced(self):
        with headroom.simulate("1GiB", mode="compute"):
            weight = nn.Parameter(torch.ones(3))
            weight.data = weight.data.to("sim")
            self.assertEqual(weight.device.type, "sim")
            (weight * 2).sum().backward()
            self.assertEqual(weight.grad.tolist(), [2.0] * 3)
            weight.data = weight.data.cpu()
            self.assertEqual(weight.tolist(), [1.0] * 3)

    def test_of_a_copied_model_are_told(self):
        net = Net()
        self.assertEqual(headroom.estimate(net, x_of()).notes, [])
        net.first.weight.register_post_accumulate_grad_hook(lambda one: None)
        self.assertIn("hooks", headroom.estimate(net, x_of()).notes[0])


class Models(unittest.TestCase):
    def test_compiled_ones_run_as_they_are_written(self):
        """torch.compile(model) was refused."""
        plain = headroom.estimate(Net(), x_of())
        inside = Net()
        inside.first = torch.compile(inside.first)
        itself = Net()
        itself.compile()
        for model in (torch.compile(Net()), inside, itself, torch.compile(inside),
                      lambda: torch.compile(Net())):
            report = headroom.estimate(model, x_of())
            self.assertEqual(report.peak, plain.peak)
            self.assertIn("eager", report.notes[0])
            self.assertTrue(str(report).startswith("note: The model ran as it is written"))
        self.assertIsInstance(inside.first, torch._dynamo.eval_frame.OptimizedModule)

    def test_compiled_functions_run_as_they_are_written(self):
        @torch.compile
        def scaled(x):
            return x * 2

        report = headroom.estimate(Net(), x_of(), loss=lambda model, x: scaled(model(x)).mean())
        self.assertTrue(report.fits)

    def test_scripted_ones_are_refused_in_words(self):
        for model in (torch.jit.script(Net()), torch.jit.trace(Net(), x_of()),
                      lambda: torch.jit.script(Net())):
            with self.assertRaisesRegex(headroom.UsageError, "torch.jit has scripted or traced"):
                headroom.estimate(model, x_of())

    def test_that_keep_their_last_output_are_copied(self):
        class Keeping(Net):
            def forward(self, x):
                self.last_output = super().forward(x)
                return self.last_output

        net = Keeping()
        fresh = headroom.estimate(net, x_of()).peak
        net(x_of())
        self.assertEqual(headroom.estimate(net, x_of()).peak, fresh)
        self.assertEqual(net.last_output.device.type, "cpu")
        normed = nn.utils.weight_norm(nn.Linear(256, 256))
        normed(x_of())
        self.assertTrue(headroom.estimate(normed, x_of()).fits)

    def test_that_cannot_be_copied_are_told(self):
        net = Net()
        net.lock = threading.Lock()
        with self.assertRaisesRegex(headroom.UsageError, "cannot .TypeError.*lock.*lambda: Net"):
            headroom.estimate(net, x_of())

    def test_lazy_ones(self):
        lazy = lambda: nn.Sequential(nn.LazyLinear(64), nn.LazyBatchNorm1d())  # noqa: E731
        known = nn.Sequential(nn.Linear(256, 64), nn.BatchNorm1d(64))
        expected = headroom.estimate(known, x_of()).at_peak
        for model in (lazy, lazy()):
            self.assertEqual(headroom.estimate(model, x_of()).at_peak, expected)
        self.assertIsInstance(nn.LazyLinear(3).weight, nn.UninitializedParameter)


class Modes(unittest.TestCase):
    def test_inference_is_a_forward_pass(self):
        """There was none: a frozen model was refused, and the hint was of no help."""
        net = Net(1024)
        train = headroom.estimate(net, x_of(8, 1024))
        only = headroom.estimate(net, x_of(8, 1024), mode="inference")
        self.assertEqual(only.at_peak.parameters, train.at_peak.parameters)
        self.assertEqual((only.at_peak.gradients, only.at_peak.optimizer), (0, 0))
        self.assertLess(only.peak.allocated, 0.5 * train.peak.allocated)
        self.assertEqual((only.peak.phase, only.notes), ("forward", []))
        self.assertTrue(net.training)
        x = x_of(4096, 1024)
        with headroom.simulate("unlimited"):
            there, x = Net(1024).to("sim").eval(), x.to("sim")
            with torch.no_grad():
                there(x)
            peak = torch.sim.max_memory_allocated()
        self.assertEqual(headroom.estimate(net, x_of(4096, 1024), mode="inference").peak.allocated, peak)

    def test_attention_of_torch_itself(self):
        """In inference it takes an operator whose memory on CUDA is not known, and the estimate failed."""
        net = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, batch_first=True), 2)
        before = torch.backends.mha.get_fastpath_enabled()
        report = headroom.estimate(net, torch.ones(4, 16, 64), mode="inference")
        self.assertTrue(report.fits)
        self.assertIn("single steps", report.notes[0])
        self.assertEqual(torch.backends.mha.get_fastpath_enabled(), before)

    def test_a_frozen_model_in_eval_is_only_run(self):
        frozen = Net().requires_grad_(False).eval()
        report = headroom.estimate(frozen, x_of())
        self.assertEqual(report.peak, headroom.estimate(Net(), x_of(), mode="inference").peak)
        self.assertIn("forward pass", report.notes[0])
        with self.assertRaisesRegex(headroom.UsageError, "mode=\"inference\""):
            headroom.estimate(Net().requires_grad_(False), x_of())
        with self.assertRaisesRegex(headroom.UsageError, "mode=\"inference\""):
            headroom.estimate_training_memory(Net().requires_grad_(False).eval(), 8, create_batch_fn=x_of)
        with self.assertRaisesRegex(headroom.UsageError, "train, inference"):
            headroom.estimate(Net(), x_of(), mode="generate")

    def test_the_largest_batch(self):
        rows = lambda n: x_of(n)  # noqa: E731
        trained, only = (headroom.find_max_batch_size(Net(), rows, gpu="1GiB", max_batch=10**6, mode=mode)
                         for mode in ("train", "inference"))
        self.assertGreater(only, 1.3 * trained)

    def test_where_no_graph_is_recorded(self):
        """An estimate inside no_grad() failed: "element 0 of tensors does not require grad"."""
        net = Net()
        expected = headroom.estimate(net, x_of()).peak
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                self.assertEqual(headroom.estimate(net, x_of()).peak, expected)
                self.assertEqual(headroom.estimate(Net, lambda: x_of()).peak, expected)


class Hints(unittest.TestCase):
    @unittest.skipIf(torch.cuda.is_available(), "CUDA is there")
    def test_a_device_by_name(self):
        def loss(model, batch):
            return model(batch).mean() + torch.ones(1, device="cuda").sum()
        with self.assertRaisesRegex(Exception, "NVIDIA|CUDA") as raised:
            headroom.estimate(Net(), x_of(), loss=loss)
        self.assertIn("simulated card", "".join(getattr(raised.exception, "__notes__", ["simulated card"])))

    def test_a_tensor_without_a_device(self):
        def loss(model, batch):
            return (model(batch) * torch.ones(8, 256)).mean()
        with self.assertRaisesRegex(RuntimeError, "devices") as raised:
            headroom.estimate(Net(), x_of(), loss=loss)
        self.assertIn("device=x.device", "".join(getattr(raised.exception, "__notes__", ["device=x.device"])))

    def test_an_error_that_unknown_values_may_have_made(self):
        """1 / loss.item() ended in "float division by zero", without a word of whose zero that was."""
        def inverse(model, batch):
            return model(batch).mean() * (1 / model(batch).sum().item())

        def guarded(model, batch):
            assert model(batch).std() > 0
            return model(batch).mean()
        for loss, kind in ((inverse, ZeroDivisionError), (guarded, AssertionError)):
            with self.assertRaises(kind) as raised:
                headroom.estimate(Net(), x_of(), loss=loss)
            self.assertIn("read 1 unknown", "".join(getattr(raised.exception, "__notes__", ["read 1 unknown"])))
        with self.assertRaises(ValueError) as raised:
            headroom.estimate(Net(), x_of(), loss=lambda model, batch: int("no value"))
        self.assertEqual(getattr(raised.exception, "__notes__", []), [])

    def test_flex_attention(self):
        from torch.nn.attention.flex_attention import flex_attention

        def loss(model, batch):
            return flex_attention(*[model(batch).view(1, 1, 8, -1)] * 3).mean()
        with self.assertRaisesRegex(ValueError, "FlexAttention") as raised:
            headroom.estimate(Net(), x_of(), loss=loss)
        self.assertIn("sdpa", "".join(getattr(raised.exception, "__notes__", ["sdpa"])))

    def test_several_cards(self):
        for gpu in ("2xRTX 4090", "24GiB@lab"):
            with self.assertRaisesRegex(headroom.UsageError, f"one card, received '{gpu}'; try headroom"):
                headroom.estimate(Net(), x_of(), gpu=gpu)

    def test_a_trace_that_was_not_kept(self):
        with self.assertRaisesRegex(headroom.UsageError, "trace=True"):
            headroom.estimate(Net(), x_of()).write_trace("never.hrtrace")


if __name__ == "__main__":
    unittest.main()
