"""bitsandbytes, as it is installed, on simulated cards: the memory of its operators on CUDA, the values of those for
the CPU."""
import importlib.util
import os
import subprocess
import sys
import unittest

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # bitsandbytes would compile operators of the CPU, shape by shape

import torch
from torch import nn

import headroom
from headroom import _engine, eight_bit

WIDE, NARROW = 4096, 1024
HAS_IT = importlib.util.find_spec("bitsandbytes") is not None


def current():
    return torch.sim.memory_stats()["requested_bytes.all.current"]


class Measured:
    """Requested bytes of the card: what is left afterwards, and the peak, both beyond what was there."""

    def __enter__(self):
        torch.sim.reset_peak_memory_stats()
        self.before = current()
        return self

    def __exit__(self, *error):
        self.left = current() - self.before
        self.peak = torch.sim.memory_stats()["requested_bytes.all.peak"] - self.before


class OnCards(unittest.TestCase):
    mode, spec = "shape-only", "H100"

    def setUp(self):
        global bnb
        self.box = headroom.simulate(self.spec, mode=self.mode, cublas_workspaces=False)
        self.addCleanup(self.box.end)
        import bitsandbytes as bnb

    def linear_4bit(self, columns=WIDE, rows=4 * WIDE, dtype=torch.bfloat16):
        layer = bnb.nn.Linear4bit(columns, rows, bias=False, compute_dtype=dtype, quant_type="nf4")
        layer.weight = bnb.nn.Params4bit(layer.weight.data.to(dtype), requires_grad=False, quant_type="nf4",
                                         module=layer)
        return layer

    def x(self, *shape, dtype=torch.bfloat16):
        return torch.randn(*shape, dtype=dtype).to("sim").requires_grad_(True)


@unittest.skipUnless(HAS_IT, "needs bitsandbytes")
class Memory(OnCards):
    def test_a_weight_takes_what_its_format_says(self):
        self.linear_4bit(64, 64).to("sim")  # makes a table that all weights share
        for layer, bytes_a_weight in (
                (self.linear_4bit(), 0.5 + 1 / 64 + 4 / (64 * 256)),
                (bnb.nn.Linear8bitLt(WIDE, WIDE, bias=False, has_fp16_weights=False), 1 + 4 / WIDE)):
            weights = layer.weight.numel()
            with Measured() as made:
                layer.to("sim")
            tables = 4 * (16 + 256 + 1) if "4" in type(layer).__name__[:7] else 0
            self.assertEqual(made.left, weights * bytes_a_weight + tables)

    def test_many_rows_take_one_dequantised_weight(self):
        layer = self.linear_4bit().to("sim")
        whole, scales, x = 2 * 4 * WIDE**2, 4 * 4 * WIDE**2 // 64, self.x(2, 1024, WIDE)
        out = 2 * 2 * 1024 * 4 * WIDE
        with Measured() as forward:
            y = layer(x)
        self.assertEqual(forward.left, out)
        self.assertEqual(forward.peak, out + whole + 2 * scales)  # with the scales, before and after their offset
        gradient = torch.ones_like(y)
        with Measured() as backward:
            y.backward(gradient)
        self.assertEqual(backward.peak, whole + 2 * x.numel())

    def test_few_rows_take_their_result_alone(self):
        layer = self.linear_4bit().to("sim")
        with Measured() as forward, torch.no_grad():
            y = layer(self.x(1, 2, WIDE).detach())
        self.assertEqual(forward.left, 2 * y.numel())

    def test_the_chip_decides_how_many_rows_are_few(self):
        peaks = {}
        for spec in ("H100", "RTX 4090", "H100"):
            headroom.simulate(spec, cublas_workspaces=False)
            layer, x = self.linear_4bit(WIDE, 8 * WIDE).to("sim"), self.x(1, 256, WIDE).detach()
            with Measured() as forward, torch.no_grad():
                layer(x)
            peaks.setdefault(spec, set()).add(forward.peak)
        self.assertEqual(peaks["RTX 4090"], {2 * 256 * 8 * WIDE})
        self.assertGreater(min(peaks["H100"]), 2 * 8 * WIDE**2)
        self.assertEqual(len(peaks["H100"]), 1)

    def test_the_product_of_int8(self):
        layer, rows = bnb.nn.Linear8bitLt(WIDE, WIDE, bias=False, has_fp16_weights=False, threshold=6.0).to("sim"), 512
        x = self.x(rows, WIDE, dtype=torch.float16)
        with Measured() as forward:
            layer(x)
        # x as bytes and its scales; sums in four bytes; two halves of the result, in half precision.
        self.assertEqual(forward.peak, rows * WIDE * (1 + 4 + 2) + 4 * rows)
        self.assertEqual(self.box[0].decided_by_unknown, 1)  # whether there are outliers: none

    def test_the_optimizers(self):
        kinds = {"AdamW8bit": 2 + 2 * 4 / 256, "Lion8bit": 1 + 4 / 256, "AdamW": 8, "PagedAdamW8bit": 2 * 4 / 256,
                 "PagedAdamW": 0}  # paged memory is the host's
        for name, bytes_a_parameter in kinds.items():
            with self.subTest(name):
                one = nn.Parameter(torch.zeros(NARROW, NARROW, device="sim"))
                one.grad = torch.ones_like(one)
                optimizer = getattr(bnb.optim, name)([one])
                with Measured() as first:
                    optimizer.step()
                tables = {"Lion8bit": 1024, "AdamW8bit": 2048, "PagedAdamW8bit": 2048}.get(name, 0)
                self.assertEqual((first.left, first.peak), 2 * (bytes_a_parameter * NARROW**2 + tables,))
                with Measured() as second:
                    optimizer.step()
                self.assertEqual((second.left, second.peak), (0, 0))
                if name.startswith("Paged"):
                    state = optimizer.state[one]["state1"]
                    self.assertEqual((state.device.type, state.shape), ("cpu", one.shape))

    def test_what_advice_takes_for_it_is_the_same(self):
        shapes = ((64, 64), (64, 65), (63, 65), (7,), (NARROW, NARROW))
        left = []
        for kind in (bnb.optim.AdamW8bit, eight_bit.AdamW8bit):
            parameters = [nn.Parameter(torch.zeros(*shape, device="sim")) for shape in shapes]
            for one in parameters:
                one.grad = torch.ones_like(one)
            optimizer = kind(parameters)
            with Measured() as step:
                optimizer.step()
            left.append(step.left)
            del optimizer
        self.assertEqual(*left)

    def test_what_a_kernel_wrote_is_unknown(self):
        one = nn.Parameter(torch.zeros(8, device="sim"))
        one.grad = torch.ones_like(one)
        self.assertTrue(_engine.knows_values(one))
        bnb.optim.AdamW8bit([one]).step()
        self.assertFalse(_engine.knows_values(one))


@unittest.skipUnless(HAS_IT, "needs bitsandbytes")
class Estimates(unittest.TestCase):
    def test_a_function_that_makes_the_model(self):
        from bitsandbytes.nn import Linear4bit

        def net():
            frozen = Linear4bit(WIDE, WIDE, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
            return nn.Sequential(nn.Linear(64, WIDE, dtype=torch.bfloat16), frozen)

        report = headroom.estimate(net, torch.randn(8, 64, dtype=torch.bfloat16))
        self.assertEqual(report.at_peak.parameters, WIDE**2 // 2 + 2 * WIDE * (64 + 1))
        self.assertLess(report.peak.allocated, 8 * WIDE**2)
        best = headroom.find_max_batch_size(net, lambda n: torch.randn(n, 64, dtype=torch.bfloat16), gpu="200MiB")
        self.assertGreater(best, 8)  # each try has a card of its own
        self.assertEqual(Linear4bit(64, 64).to("cpu")(torch.ones(1, 64)).shape, (1, 64))


@unittest.skipUnless(HAS_IT, "needs bitsandbytes")
class Values(OnCards):
    mode, spec = "compute", "4GiB"

    def same(self, operator, *arguments, **more):
        """On the card as on the CPU, results and arguments, with no temporaries beside the results of CUDA's."""
        there = [one.to("sim") if isinstance(one, torch.Tensor) else one for one in arguments]
        found = operator(*there, **more)
        expected = operator(*arguments, **more)
        pairs = list(zip(there, arguments))
        pairs += zip(found, expected) if isinstance(found, tuple) else [(found, expected)]
        for one, other in pairs:
            if isinstance(one, torch.Tensor):
                self.assertEqual((one.device.type, one.dtype, one.shape), ("sim", other.dtype, other.shape))
                self.assertTrue(torch.equal(one.cpu(), other), operator)
        return expected

    def test_4bit(self):
        operators = torch.ops.bitsandbytes
        for kind in ("nf4", "fp4"):
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                for shape in ((64, 128), (3, 192), (5, 7), (1, 1)):
                    with self.subTest(kind=kind, dtype=dtype, shape=shape):
                        weight = torch.randn(shape, dtype=dtype)
                        packed, absmax = self.same(operators.quantize_4bit, weight, 64, kind, torch.uint8)
                        whole = self.same(operators.dequantize_4bit, packed, absmax, 64, kind, shape, dtype)
                        x = torch.randn(6, shape[1], dtype=dtype)
                        self.same(operators.gemm_4bit, x, packed, shape, absmax, 64, kind)
                        code = bnb.functional.get_4bit_type(kind, device="cpu")
                        self.same(operators.gemv_4bit, x[:1], packed, shape, absmax, code, 64)
                        out = torch.empty(shape, dtype=dtype, device="sim")
                        operators.dequantize_4bit.out(packed.to("sim"), absmax.to("sim"), 64, kind, shape, dtype, out)
                        self.assertTrue(torch.equal(out.cpu(), whole))

    def test_8bit(self):
        operators, code = torch.ops.bitsandbytes, bnb.functional.create_dynamic_map()
        for dtype in (torch.float32, torch.bfloat16):
            values = torch.randn(5, 300, dtype=dtype)
            codes, absmax = self.same(operators.quantize_blockwise, values, code, 256)
            self.same(operators.dequantize_blockwise, codes, absmax, code, 256, dtype)
        x, weight = torch.randn(6, 64, dtype=torch.float16), torch.randn(32, 64, dtype=torch.float16)
        x[2, 5] = 20  # an outlier
        by_column, scales, _ = self.same(operators.int8_vectorwise_quant, weight)
        by_row, row_scales, outliers = self.same(operators.int8_vectorwise_quant, x, 6.0)
        self.assertEqual(outliers.tolist(), [5])
        sums = self.same(operators.int8_linear_matmul, by_row, by_column)
        self.same(operators.int8_mm_dequant, sums, row_scales, scales)
        found = operators.int8_double_quant(x.to("sim"), 6.0)  # which the CPU lacks
        for one, expected in zip((found[0], found[2], found[4]), (by_row, row_scales, outliers)):
            self.assertTrue(torch.equal(one.cpu(), expected))

    def test_a_training_equals_that_on_the_cpu(self):
        losses = {device: self.losses(device, "AdamW8bit") for device in ("cpu", "sim")}
        self.assertEqual(losses["cpu"], losses["sim"])
        self.assertEqual(losses["cpu"], self.losses("sim", "PagedAdamW8bit"))
        self.assertLess(losses["cpu"][-1], losses["cpu"][0])

    def losses(self, device, optimizer):
        torch.manual_seed(0)
        frozen = self.linear_4bit(256, 512, torch.float32).to(device)
        net = nn.Sequential(nn.Linear(256, 256), nn.Tanh(), frozen).to(device)
        steps = getattr(bnb.optim, optimizer)(net[0].parameters(), lr=1e-2)
        x, y = torch.randn(8, 256).to(device), torch.randn(8, 512).to(device)
        made = []
        for _ in range(5):
            loss = (net(x) - y).square().mean()
            steps.zero_grad()
            loss.backward()
            steps.step()
            made.append(loss.item())
        return made


@unittest.skipUnless(HAS_IT, "needs bitsandbytes")
class AsCuda(unittest.TestCase):
    def test_it_is_imported_where_there_is_no_driver(self):
        program = """
import torch, headroom
with headroom.as_cuda("2xRTX 4090"):
    import bitsandbytes as bnb
    assert bnb.cextension.BNB_BACKEND == "CUDA" and not bnb.cextension.lib.compiled_with_cuda
    layer = bnb.nn.Linear4bit(256, 512, quant_type="nf4", compute_dtype=torch.bfloat16).to("cuda:1")
    y = layer(torch.randn(4, 256, device="cuda:1", dtype=torch.bfloat16, requires_grad=True))
    y.sum().backward()
    bnb.nn.Linear8bitLt(256, 512, has_fp16_weights=False).cuda()(torch.randn(4, 256, device="cuda").half())
    print(y.device, layer.weight.device, layer.weight.quant_state.absmax.device)
assert bnb.cuda_specs.get_cuda_specs.__module__ == "bitsandbytes.cuda_specs"
print(bnb.nn.Linear4bit(64, 64).to("cpu")(torch.ones(1, 64)).shape)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "cuda:1 cuda:1 cuda:1\ntorch.Size([1, 64])\n")
        self.assertNotIn("torch.compile", done.stderr)


if __name__ == "__main__":
    unittest.main()
