"""What a program reads of a simulated card: values that are known, and one consistent zero for the rest."""
import unittest
from unittest import mock

import torch
from torch import nn

import headroom

MIB = 2**20


def wide():
    return nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))


class Guards(unittest.TestCase):
    """A step behind a finiteness check was skipped, and the estimate five times too low."""

    def peak(self, loss):
        report = headroom.estimate(wide, torch.randn(8, 2048), loss=loss)
        return report.peak.allocated, report

    def test_the_guarded_step_is_run(self):
        plain, without = self.peak(lambda m, b: m(b).mean())
        self.assertEqual(without.decided_by_unknown, 0)
        guards = (torch.isfinite, lambda l: l < 1e9, lambda l: torch.allclose(l, l + 0),
                  lambda l: torch.equal(l, l + 0), lambda l: not torch.isnan(l).any(),
                  lambda l: (l.abs() < 1e9).all())
        for number, guard in enumerate(guards):
            def loss(m, b, guard=guard):
                value = m(b).mean()
                return value if guard(value) else torch.zeros((), device=b.device, requires_grad=True)
            with self.subTest(number):
                peak, report = self.peak(loss)
                self.assertAlmostEqual(peak, plain, delta=MIB)
                self.assertEqual(report.decided_by_unknown, 2)  # one in each step
                self.assertIn("decided by 2 unknown", repr(report))
                self.assertIn("may have branched", report.describe().splitlines()[0])

    def test_an_assertion_in_forward_holds(self):
        class Checked(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = wide()

            def forward(self, x):
                x = self.inner(x)
                assert torch.isfinite(x).all() and not torch.isnan(x).any(), "nan in activations"
                return x.mean()
        self.assertGreater(headroom.estimate(Checked, torch.randn(8, 2048)).peak.allocated, 128 * MIB)

    def test_what_distributions_check_holds(self):
        """A policy of PPO or SAC stopped at "Expected parameter scale ... GreaterThan(lower_bound=0.0)"."""
        def loss(policy, observed):
            mean, scale = policy(observed).chunk(2, 1)
            chosen = torch.distributions.Normal(mean, scale.exp())
            weight = torch.distributions.Categorical(torch.softmax(mean, 1))
            return (chosen.log_prob(chosen.rsample()).sum(1) - weight.log_prob(weight.sample())).mean()
        report = headroom.estimate(lambda: nn.Linear(2048, 128), lambda: torch.randn(64, 2048), loss=loss)
        self.assertEqual(report.decided_by_unknown, 0)
        with headroom.simulate("1GiB"), self.assertRaisesRegex(ValueError, "scale"):
            torch.distributions.Normal(0.0, torch.tensor([1.0, -1.0], device="sim"))

    def test_a_step_behind_a_finite_norm_is_taken(self):
        with headroom.simulate("1GiB"):
            net = wide().to("sim")
            optimizer = torch.optim.AdamW(net.parameters())
            net(torch.randn(8, 2048, device="sim")).mean().backward()
            if torch.isfinite(nn.utils.clip_grad_norm_(net.parameters(), 1.0)):
                optimizer.step()
            self.assertEqual(len(optimizer.state), 4)

    def test_a_scaler_keeps_its_factor(self):
        with headroom.simulate("1GiB"):
            net, scaler = nn.Linear(64, 64).to("sim"), torch.amp.GradScaler("sim")
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                with torch.autocast("sim", dtype=torch.float16):
                    loss = net(torch.randn(8, 64, device="sim")).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            self.assertEqual(scaler.get_scale(), 65536.0)


class Printed(unittest.TestCase):
    """print() of a tensor ended in 'expected values ... received aten::masked_select'."""

    def setUp(self):
        self.box = headroom.simulate("1GiB")
        self.addCleanup(self.box.end)

    def test_what_is_unknown_says_so(self):
        x = torch.randn(2, 3, device="sim", requires_grad=True)
        self.assertIn("values unknown, size=(2, 3)", repr(x))
        self.assertIn("device='sim:0'", str(x))
        self.assertIn("grad_fn", str(x.sum()))
        self.assertEqual((f"{x.sum()}", f"{x.sum():.3f}"), ("unknown", "unknown"))
        self.assertIn("values unknown", repr(nn.Parameter(x)))
        self.assertEqual(self.box[0].values_read_as_zero, 0)

    def test_what_is_known_is_shown(self):
        self.assertIn("[1, 2]", repr(torch.tensor([1, 2], device="sim")))
        self.assertEqual(f"{torch.tensor(2.5, device='sim'):.2f}", "2.50")

    def test_of_a_simulation_that_has_ended(self):
        x = torch.arange(3, device="sim")
        self.box.end()
        self.assertIn("values unknown, size=(3,)", repr(x))

    def test_in_an_estimate(self):
        said = []

        self.box.end()  # or it would be made in a child process

        def loss(model, batch):
            value = model(batch).mean()
            said.append(str(value))
            return value
        report = headroom.estimate(wide, torch.randn(8, 2048), loss=loss)
        self.assertIn("values unknown", said[0])
        self.assertEqual(report.decided_by_unknown, 0)

    def test_with_data(self):
        self.box[0].mode = "compute"
        self.assertIn("[1., 2.]", repr(torch.tensor([1.0, 2.0], device="sim")))


class Known(unittest.TestCase):
    def setUp(self):
        self.box = headroom.simulate("1GiB")
        self.addCleanup(self.box.end)

    def test_lengths_that_a_batch_function_draws(self):
        class Recurrent(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm = nn.LSTM(8, 8, batch_first=True)

            def forward(self, x, lengths):
                packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True,
                                                           enforce_sorted=False)
                return self.lstm(packed)[0].data
        self.box.end()
        found = headroom.find_max_batch_size(
            Recurrent, lambda n: (torch.randn(n, 20, 8), torch.randint(1, 21, (n,))), gpu="1GiB")
        self.assertGreater(found, 1)

    def test_steps_on_a_card_that_is_the_default(self):
        """ZeroDivisionError: AdamW's counters lay on the card, and its foreach form forgot them."""
        with torch.device("sim"):
            net = nn.Linear(16, 16)
            optimizer = torch.optim.AdamW(net.parameters())
            for _ in range(2):
                net(torch.randn(4, 16)).mean().backward()
                optimizer.step()
        self.assertEqual([state["step"].item() for state in optimizer.state.values()], [2, 2])

    def test_a_graph_of_many_edges(self):
        edges = torch.stack([torch.arange(200_000), torch.arange(200_000) // 2]).to("sim")
        without_loops = edges[:, edges[0] != edges[1]]
        self.assertEqual(without_loops.shape, (2, 199_999))

    def test_losses_of_sequences_and_of_labels_out_of_range(self):
        """ctc_loss was refused for masked_select, and so was printing a loss."""
        with headroom.simulate("1GiB"):
            scores = torch.randn(50, 4, 20, device="sim", requires_grad=True).log_softmax(2)
            labels = torch.randint(1, 20, (4, 30), device="sim")
            loss = nn.functional.ctc_loss(scores, labels, torch.full((4,), 50), torch.full((4,), 30))
            loss.backward()
            wrong = torch.tensor([5, 7], device="sim")
            for one in (loss, nn.functional.cross_entropy(torch.randn(2, 3, device="sim"), wrong)):
                self.assertIn("unknown", repr(one))

    def test_sparse_adam(self):
        net = nn.Embedding(1000, 16, sparse=True).to("sim")
        optimizer = torch.optim.SparseAdam(net.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.tensor([3, 1, 3], device="sim")).sum().backward()
            optimizer.step()
        self.assertEqual(net.weight.grad.coalesce().values().shape, (2, 16))


class Generated(unittest.TestCase):
    """generate() never ended without data: whether all sequences had ended read false for ever."""

    def test_it_ends_at_its_length(self):
        from transformers import GPT2Config, GPT2LMHeadModel

        with headroom.simulate("1GiB"):
            net = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2)).to("sim").eval()
            start = torch.randint(0, 1000, (2, 8), device="sim")
            for way in ({"do_sample": False}, {"do_sample": True, "top_k": 5}):
                with self.subTest(way):
                    made = net.generate(start, max_new_tokens=6, pad_token_id=0, **way)
                    self.assertEqual(made.shape, (2, 14))

    def test_beams_are_searched_to_its_length(self):
        """One token was tried, of six: the worst ended beam read as zero, in place of -1e9 where none had
        ended. Which beam wins is a value, and so is the winner's length."""
        from transformers import GPT2Config, GPT2LMHeadModel

        peaks = []
        for mode in ("compute", "shape-only"):
            with headroom.simulate("1GiB", mode=mode):
                torch.manual_seed(0)
                net = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2)).to("sim").eval()
                start = torch.randint(0, 1000, (2, 8), device="sim")
                passes = mock.Mock(return_value=None)
                net.register_forward_hook(passes)
                for sample in (False, True):
                    net.generate(start, max_new_tokens=6, pad_token_id=0, num_beams=3, do_sample=sample)
                self.assertEqual(passes.call_count, 12)
                peaks.append(torch.sim.max_memory_allocated())
        self.assertEqual(*peaks)


class Computed(unittest.TestCase):
    """With data: what the CPU gives."""

    def setUp(self):
        self.box = headroom.simulate("1GiB", mode="compute")
        self.addCleanup(self.box.end)

    def test_a_traced_convolution(self):
        """Its results were memory that had not been written, without a gradient."""
        for make in (lambda: nn.Conv2d(3, 4, 3), lambda: nn.ConvTranspose1d(3, 4, 3, stride=2)):
            torch.manual_seed(0)
            here = make()
            x = torch.randn(2, 3, *[8] * (here.weight.dim() - 2))
            there = make().to("sim")
            there.load_state_dict(here.state_dict())
            traced = torch.jit.trace(there, x.to("sim"), check_trace=False)
            y = traced(x.to("sim"))
            self.assertTrue(torch.equal(y.cpu(), here(x)))
            y.sum().backward()
            here(x).sum().backward()
            self.assertTrue(torch.equal(there.weight.grad.cpu(), here.weight.grad))

    def test_forward_derivatives(self):
        """They start from zeros without memory, which were taken for tensors without data."""
        x = torch.arange(1.0, 4.0)
        for derive in (torch.func.hessian, torch.func.jacfwd):
            def cubes(x):
                return (x**3).sum()
            self.assertTrue(torch.equal(derive(cubes)(x.to("sim")).cpu(), derive(cubes)(x)))
        layer = nn.Linear(3, 2)
        moved = nn.Linear(3, 2).to("sim")
        moved.load_state_dict(layer.state_dict())
        here = torch.func.jvp(layer, (x,), (x,))
        there = torch.func.jvp(moved, (x.to("sim"),), (x.to("sim"),))
        for a, b in zip(here, there):
            self.assertTrue(torch.equal(a, b.cpu()))

    def test_an_encoder_in_evaluation_with_a_padding_mask(self):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(32, 4, batch_first=True)
        here = nn.TransformerEncoder(layer, 2).eval()
        x, mask = torch.randn(2, 5, 32), torch.zeros(2, 5, dtype=torch.bool)
        mask[1, 3:] = True
        with torch.no_grad():
            expected = here(x, src_key_padding_mask=mask)
            y = here.to("sim")(x.to("sim"), src_key_padding_mask=mask.to("sim")).cpu()
            torch.testing.assert_close(y[~mask], expected[~mask])
            self.box[0].mode = "shape-only"
            y = here(x.to("sim"), src_key_padding_mask=mask.to("sim"))
        self.assertEqual(y.shape, x.shape)

    def test_an_extensions_operator_whose_shape_depends_on_values(self):
        """torchvision's nms: its shapes in Python are for a compiler, and were asked for."""
        library = torch.library.Library("headroom_values_test", "FRAGMENT")
        library.define("places(Tensor x) -> Tensor")
        library.impl("places", lambda x: x.nonzero(), "CPU")
        torch.library.register_fake(
            "headroom_values_test::places",
            lambda x: x.new_empty([torch.library.get_ctx().new_dynamic_size(), x.dim()]), lib=library)
        x = torch.tensor([0.0, 2.0, 3.0])
        found = torch.ops.headroom_values_test.places(x.to("sim"))
        self.assertEqual(found.tolist(), [[1], [2]])
        self.box[0].mode = "shape-only"
        with self.assertRaisesRegex(NotImplementedError, "values, on which the shape.*places.*compute mode"):
            torch.ops.headroom_values_test.places(torch.randn(3, device="sim"))

    def test_synchronised_batch_norm(self):
        torch.manual_seed(0)
        x = torch.randn(4, 3, 5, 5)
        results = []
        with headroom.pretend_ranks(2):
            for device, layer in (("cpu", nn.BatchNorm2d(3)), ("sim", nn.SyncBatchNorm(3))):
                layer = layer.to(device)
                y = layer(x.to(device).requires_grad_()) if device == "sim" else \
                    layer(torch.cat([x, x]).requires_grad_())
                (y * y.detach().cos()).sum().backward()
                results.append([y[:4], layer.weight.grad, layer.running_mean, layer.running_var])
        cpu, sim = results
        # Both ranks of two hold the same: the batch is twice this one's, its gradient half.
        torch.testing.assert_close(sim[0].cpu(), cpu[0])
        torch.testing.assert_close(2 * sim[1].cpu(), cpu[1])
        torch.testing.assert_close(sim[2].cpu(), cpu[2])
        torch.testing.assert_close(sim[3].cpu(), cpu[3])


class Refused(unittest.TestCase):
    def test_types_that_do_not_multiply(self):
        """Linear said "self and mat2 must have the same dtype, but got Float and Float"."""
        with headroom.simulate("1GiB"):
            for given, name in ((torch.long, "Long"), (torch.bfloat16, "BFloat16")):
                with self.assertRaisesRegex(RuntimeError, f"mat1 and mat2 .* got {name} and Float"):
                    nn.Linear(4, 4).to("sim")(torch.ones(2, 4, dtype=given, device="sim"))

    def test_a_nested_tensor_that_is_not_jagged(self):
        """It was an "internal error" with a request to file an issue."""
        with headroom.simulate("1GiB"):
            for parts in ([torch.randn(2, 3), torch.randn(4, 3)],
                          [torch.randn(2, 3, device="sim"), torch.randn(4, 3, device="sim")]):
                nested = torch.nested.nested_tensor(parts, device="sim")
                with self.assertRaisesRegex(NotImplementedError, "padded tensor with a mask"):
                    print(nested + nested)
            jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
            self.assertEqual((jagged * 2).values().shape, (6, 3))

    def test_experts_one_after_the_other(self):
        """transformers' experts in their eager form ended with advice about nonzero, which is not the user's."""
        class Experts(torch.nn.Linear):
            def forward(self, x):
                return x[(super().forward(x)[:, 0] > 0).nonzero()[:, 0]]
        with self.assertRaises(NotImplementedError) as raised:
            headroom.estimate(Experts(64, 64), torch.ones(4096, 64), assume=None)
        self.assertIn("grouped_mm", "".join(getattr(raised.exception, "__notes__", ["grouped_mm"])))


class SynchronisedWithoutData(unittest.TestCase):
    def test_batch_norm_of_eight_ranks(self):
        with headroom.simulate("1GiB"), headroom.pretend_ranks(8):
            net = nn.SyncBatchNorm.convert_sync_batchnorm(
                nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))).to("sim")
            y = net(torch.randn(2, 3, 8, 8, device="sim"))
            y.sum().backward()
            self.assertEqual(net[0].weight.grad.shape, net[0].weight.shape)


if __name__ == "__main__":
    unittest.main()
