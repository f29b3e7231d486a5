"""Programs that ask for CUDA on simulated cards: headroom.as_cuda."""
import importlib
import importlib.util
import io
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import headroom
from headroom.masquerade import cuda_module, names

SPEC = "2xH100"


class Table(unittest.TestCase):
    def test_every_public_name_of_torch_cuda_has_a_line(self):
        missing = []
        for path, module in cuda_module.modules():
            for name in cuda_module.public_names(module):
                value = vars(module).get(name)
                full = name if not path or vars(torch.cuda).get(name) is value else f"{path}.{name}"
                if value is not None and not names.line_of(full):
                    missing.append(full)
        self.assertEqual(missing, [])

    def test_every_answer_is_there(self):
        from headroom import torch_sim
        from headroom.masquerade import answers
        for name in names.ANSWERED:
            last = name.rpartition(".")[2]
            self.assertTrue(any(hasattr(module, one) for module in (answers, torch_sim)
                                for one in (last, name.replace(".", "_"))), name)

    def test_a_refused_name_says_why_and_no_driver_is_reached(self):
        with headroom.as_cuda(SPEC):
            for refused in (lambda: torch.cuda.CUDAGraph(), lambda: torch.cuda.cudart(),
                            lambda: torch.cuda.MemPool(), lambda: torch.cuda.make_graphed_callables(None, ()),
                            lambda: torch._C._cuda_getCurrentBlasHandle()):
                with self.assertRaisesRegex(headroom.UnavailableError, r"^\[as_cuda\] torch\..* cannot be answered"):
                    refused()


class AsCuda(unittest.TestCase):
    def setUp(self):
        self.cards = headroom.as_cuda(SPEC, mode="compute")
        self.addCleanup(self.cards.end)

    def test_tensors_are_made_on_moved_to_and_found_on_cuda(self):
        card = torch.device("cuda", 1)
        for made in (torch.empty(2, device="cuda:1"), torch.zeros(2, device=card), torch.tensor([1, 2], device=card),
                     torch.arange(3, device="cuda:1"), torch.randn(2).to(card), torch.randn(2).cuda(1),
                     torch.eye(2, device=card), torch.randperm(4, device=card), torch.ones(2).to("cuda:1"),
                     torch.as_tensor([1.], device=card), torch.ones(1).cuda().to(1)):
            self.assertEqual((made.device, made.is_cuda, made.get_device()), (card, True, 1))
        with card:
            self.assertEqual(torch.ones(2).device, card)
        torch.set_default_device("cuda")
        self.assertEqual(torch.ones(2).device, torch.device("cuda", 0))
        torch.set_default_device(None)
        here = torch.ones(2, device="cuda")
        self.assertIs(here.to("cuda"), here)
        self.assertIs(here.cuda(), here)
        self.assertEqual(repr(here), "tensor([1., 1.], device='cuda:0')")
        self.assertEqual(here.type(), "torch.cuda.FloatTensor")
        self.assertEqual(torch.ones(2).type(torch.cuda.HalfTensor).device, torch.device("cuda", 0))
        self.assertEqual(torch.cuda.FloatTensor([1, 2]).tolist(), [1, 2])
        self.assertEqual(here.untyped_storage().device, torch.device("cuda", 0))
        self.assertEqual(torch.sparse_coo_tensor([[0], [1]], [1.], (2, 2), device="cuda").device.type, "cuda")

    def test_a_number_is_a_card_of_cuda(self):
        self.assertEqual(torch.device(1), torch.device("cuda", 1))
        self.assertEqual((str(torch.device(0)), torch.device(0).type), ("cuda:0", "cuda"))
        self.assertIsInstance(torch.ones(1, device=0).device, torch.device)
        self.assertEqual(torch.ones(1).to(torch.device(1)).device, torch.device(1))
        with torch.device(1):
            self.assertEqual(torch.ones(1).get_device(), 1)
        import copy
        import pickle
        self.assertEqual(pickle.loads(pickle.dumps(torch.device(1))), copy.deepcopy(torch.device(1)))
        with self.assertRaisesRegex(RuntimeError, "invalid device ordinal"):
            torch.cuda.set_device(5)

    def test_the_card_is_the_one_that_was_named(self):
        self.assertTrue(torch.cuda.is_available() and torch.cuda.is_bf16_supported())
        self.assertEqual(torch.cuda.device_count(), 2)
        self.assertEqual(torch.cuda.get_device_name(), "NVIDIA H100 80GB HBM3")
        self.assertEqual(torch.cuda.get_device_capability(1), (9, 0))
        facts = torch.cuda.get_device_properties("cuda")
        free, total = torch.cuda.mem_get_info()
        self.assertEqual((facts.total_memory, facts.multi_processor_count), (total, 132))
        self.assertEqual(torch.accelerator.current_accelerator(), torch.device("cuda"))
        before = torch.cuda.memory_allocated()
        kept = torch.empty(1 << 20, device="cuda")
        self.assertEqual(torch.cuda.memory_allocated() - before, kept.numel() * 4)
        self.assertEqual(torch.cuda.memory_stats()["num_ooms"], 0)
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, "^CUDA out of memory. Tried to allocate"):
            torch.empty(total, device="cuda")

    def test_a_step_with_mixed_precision_equals_the_cpus(self):
        def losses(device, dtype=torch.bfloat16):
            torch.manual_seed(1)
            net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(device)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler(device)
            x = torch.randn(32, 8, generator=torch.Generator().manual_seed(2)).to(device)
            found = []
            for _ in range(3):
                with torch.autocast(device, dtype, enabled=False):
                    loss = net(x).square().mean()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 1.)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                found.append(loss.item())
            return found

        self.assertEqual(losses("cuda"), losses("cpu"))

    def test_autocast_is_that_of_the_cards(self):
        layer, x = nn.Linear(4, 4).cuda(), torch.randn(2, 4, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            self.assertEqual(layer(x).dtype, torch.bfloat16)
            self.assertTrue(torch.is_autocast_enabled() and torch.is_autocast_enabled("cuda"))
        with torch.cuda.amp.autocast():
            self.assertEqual((layer(x).dtype, torch.get_autocast_gpu_dtype()), (torch.float16, torch.float16))
        self.assertFalse(torch.is_autocast_enabled())

    def test_generators_streams_and_events(self):
        generator = torch.Generator("cuda").manual_seed(3)
        self.assertEqual(generator.device, torch.device("cuda", 0))
        self.assertIsInstance(torch.cuda.default_generators[1], torch.Generator)
        self.assertEqual(torch.randn(2, generator=generator, device="cuda").tolist(),
                         torch.randn(2, generator=torch.Generator().manual_seed(3)).tolist())
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            self.assertEqual(torch.cuda.current_stream(), stream)
            x = torch.ones(2, device="cuda")
        torch.cuda.current_stream().wait_stream(stream)
        x.record_stream(torch.cuda.current_stream())
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        end.record()
        torch.cuda.synchronize()
        self.assertGreaterEqual(begin.elapsed_time(end), 0)
        self.assertEqual(stream.device, torch.device("cuda", 0))

    def test_random_numbers_come_back_with_the_state(self):
        state = torch.cuda.get_rng_state()
        self.assertEqual(state.numel(), 16)  # as CUDA's
        first = torch.rand(3, device="cuda").tolist()
        torch.cuda.set_rng_state(state)
        self.assertEqual(torch.rand(3, device="cuda").tolist(), first)
        layer, x = nn.Dropout(0.5), torch.ones(64, device="cuda", requires_grad=True)
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
        self.assertTrue(set(x.grad.tolist()) <= {0., 2.})

    def test_checkpoints_name_cuda_and_load_anywhere(self):
        file = io.BytesIO()
        torch.save({"x": torch.ones(2, device="cuda:1")}, file)
        for where, device in ((None, "cuda:1"), ("cpu", "cpu"), ("cuda:0", "cuda:0"),
                              (lambda storage, place: storage.cuda(0), "cuda:0")):
            file.seek(0)
            self.assertEqual(str(torch.load(file, map_location=where)["x"].device), device)

    def test_a_loader_pins_its_batches(self):
        for batch, in DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=4, pin_memory=True):
            self.assertTrue(batch.is_pinned())
            self.assertTrue(batch.cuda(non_blocking=True).is_cuda)

    def test_data_parallel_trains_on_two_cards(self):
        net = nn.DataParallel(nn.Linear(4, 1).cuda())
        net(torch.ones(6, 4, device="cuda")).sum().backward()
        self.assertEqual(net.module.weight.grad.tolist(), [[6., 6., 6., 6.]])
        self.assertGreater(torch.cuda.max_memory_allocated(1), 0)

    def test_compile_means_eager_and_keeps_the_name(self):
        net = nn.Linear(2, 2).cuda()
        self.assertIs(torch.compile(net)._orig_mod, net)

        @torch.compile(mode="max-autotune")
        def double(x):
            return 2 * x
        self.assertEqual(double(torch.ones(1, device="cuda")).item(), 2)

    def test_a_whole_network_of_cudnn(self):
        net = nn.LSTM(4, 8, 2).cuda()
        out, _ = net(torch.randn(3, 2, 4, device="cuda"))
        out.sum().backward()
        self.assertTrue(net.weight_ih_l0.grad.is_cuda)

    def test_script_functions_make_tensors_there(self):
        @torch.jit.script
        def plus_zeros(x):
            return torch.zeros([2], device="cuda") + x
        self.assertTrue(plus_zeros(torch.ones(2, device="cuda")).is_cuda)


class Packages(unittest.TestCase):
    """Those with kernels of their own; here they are installed, and would end the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name in ("bitsandbytes", "xformers", "flash_attn", "apex", "deepspeed", "of_a_user"):
            (pathlib.Path(folder.name) / name).mkdir()
            (pathlib.Path(folder.name) / name / "__init__.py").write_text("raise SystemExit('a driver')")
        (pathlib.Path(folder.name) / "kernels.py").write_text("def get_kernel(name): raise SystemExit('a download')")
        sys.path.insert(0, folder.name)
        self.addCleanup(sys.path.remove, folder.name)
        self.cards = headroom.as_cuda(SPEC)
        self.addCleanup(self.cards.end)

    def test_they_are_imported_and_refuse_on_use(self):
        """TRL's GRPO trainer imports bitsandbytes at its top, and a script that used none of it was refused."""
        for name in ("xformers", "apex", "deepspeed"):
            self.assertIsNone(importlib.util.find_spec(name), "a program that looks has a way without it")
        self.assertIsNotNone(importlib.util.find_spec("bitsandbytes"))
        import bitsandbytes as bnb  # type: ignore[import-not-found]
        import deepspeed  # type: ignore[import-not-found]
        from apex.parallel import DistributedDataParallel  # type: ignore[import-not-found]
        from bitsandbytes.nn import Linear4bit

        class Own(DistributedDataParallel):
            pass
        self.assertNotIsInstance(nn.Linear(2, 2), (Linear4bit, bnb.nn.Linear8bitLt))
        for made in (lambda: Linear4bit(8, 8), lambda: bnb.functional.quantize_4bit(torch.ones(8)), Own,
                     deepspeed.initialize, deepspeed.zero.Init):
            with self.assertRaisesRegex(headroom.UnavailableError, "has kernels of its own for CUDA.*; try "):
                made()
        with self.assertRaises(ModuleNotFoundError):
            importlib.import_module("transformer_engine")
        with self.assertRaisesRegex(SystemExit, "a driver"):
            importlib.import_module("of_a_user")

    def test_kernels_of_the_hub_are_refused_when_they_are_fetched(self):
        import kernels  # type: ignore[import-not-found]
        with self.assertRaisesRegex(headroom.UnavailableError, "kernels.get_kernel has kernels of its own"):
            kernels.get_kernel("kernels-community/activation")

    def test_what_torch_has_stands_in(self):
        import apex
        import bitsandbytes as bnb
        from xformers.ops import memory_efficient_attention  # type: ignore[import-not-found]
        net = nn.Sequential(nn.Linear(512, 512), apex.normalization.FusedRMSNorm(512)).cuda()
        q = net(torch.randn(2, 128, 512, device="cuda")).view(2, 128, 8, 64)
        memory_efficient_attention(q, q, q).sum().backward()
        for make in (bnb.optim.AdamW8bit, lambda given: bnb.optim.AdamW(given, optim_bits=8)):
            optimizer = make(net.parameters())
            before = torch.cuda.memory_allocated()
            optimizer.step()
            # Two bytes an element, two floats a block of 256, two tables; four small parameters' floats.
            self.assertEqual(torch.cuda.memory_allocated() - before,
                             2 * 512**2 + 2 * 4 * 512**2 // 256 + 2 * 1024 + 4 * 2048)

    def test_flash_attention_has_a_stand_in(self):
        from flash_attn import flash_attn_func  # type: ignore[import-not-found]
        from flash_attn.bert_padding import unpad_input  # type: ignore[import-not-found]
        q, k, v = (torch.randn(2, 128, 8, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
                   for _ in range(3))
        before = torch.cuda.memory_allocated()
        out = flash_attn_func(q, k, v, causal=True)
        self.assertEqual(out.shape, q.shape)
        # The output, and the sums of the softmax: one float for each row of each head.
        self.assertLess(torch.cuda.memory_allocated() - before - 2 * q.numel() - 4 * 2 * 128 * 8, 4096)
        out.sum().backward()
        rows, *_ = unpad_input(torch.randn(2, 8, 4, device="cuda"), torch.ones(2, 8, device="cuda").long())
        self.assertEqual(rows.shape, (16, 4))
        from flash_attn.ops.rms_norm import rms_norm  # type: ignore[import-not-found]
        with self.assertRaisesRegex(headroom.UnavailableError, "flash_attn.ops.rms_norm.rms_norm has kernels"):
            rms_norm(q, q, 1e-5)

    def test_afterwards_they_are_what_they_are(self):
        self.cards.end()
        self.assertIsNotNone(importlib.util.find_spec("bitsandbytes"))
        sys.modules.pop("flash_attn", None)
        with self.assertRaisesRegex(SystemExit, "a driver"):
            importlib.import_module("flash_attn")


class Ends(unittest.TestCase):
    def test_torch_is_as_before(self):
        modules = [torch, torch._C, torch.Tensor, torch.UntypedStorage, torch.distributed,
                   torch.amp.autocast_mode, torch.accelerator, torch.version,
                   *(module for _, module in cuda_module.modules())]
        with headroom.simulate("1MiB"):  # registers `sim`
            pass
        before = [dict(vars(module)) for module in modules]
        with headroom.as_cuda(SPEC):
            torch.ones(2, device="cuda")
        for module, attributes in zip(modules, before):
            changed = [name for name, value in vars(module).items()
                       if attributes.get(name) is not value and not isinstance(value, types.ModuleType)]
            self.assertEqual(changed, [], module)
        self.assertFalse(torch.cuda.is_available())
        with headroom.as_cuda("1xH200"):
            self.assertEqual(torch.cuda.device_count(), 1)

    def test_two_at_a_time_are_refused(self):
        with headroom.as_cuda(SPEC):
            with self.assertRaisesRegex(headroom.UsageError, "one at a time"):
                headroom.as_cuda(SPEC)

    def test_after_cuda_has_started_it_is_refused(self):
        program = ("import torch, headroom; torch.cuda._initialized = True\n"
                   "torch.cuda.is_initialized = lambda: True\n"
                   "try: headroom.as_cuda('1GiB')\n"
                   "except headroom.UnavailableError as error: print(error)")
        out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        self.assertIn("expected a process that has not used CUDA", out)


class Ranks(unittest.TestCase):
    def test_nccl_is_the_backend_of_the_cards(self):
        import torch.distributed as dist
        with headroom.as_cuda(SPEC, mode="compute", pretend_ranks=True):
            dist.init_process_group("nccl", rank=0, world_size=4, init_method="tcp://127.0.0.1:1")
            try:
                self.assertEqual((dist.get_world_size(), dist.get_backend()), (4, "nccl"))
                self.assertTrue(dist.is_nccl_available())
                x = torch.ones(2, device="cuda")
                dist.all_reduce(x)
                self.assertEqual(x.tolist(), [4, 4])
                net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1).cuda(), device_ids=[0])
                net(x[None]).sum().backward()
                self.assertTrue(net.module.weight.grad.is_cuda)
            finally:
                dist.destroy_process_group()

    def test_sharded_weights_train(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        import torch.distributed as dist
        with headroom.as_cuda(SPEC, pretend_ranks=True):
            dist.init_process_group("nccl", rank=0, world_size=4, init_method="tcp://127.0.0.1:1")
            try:
                net = parallelize_module(
                    nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).cuda(),
                    init_device_mesh("cuda", (4,)), {"0": ColwiseParallel(), "2": RowwiseParallel()})
                net(torch.ones(2, 8, device="cuda")).sum().backward()
                self.assertEqual(net[0].weight.grad.to_local().shape, (4, 8))
                self.assertTrue(net[0].weight.is_cuda and net[0].weight.grad.is_cuda)
            finally:
                dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main()
