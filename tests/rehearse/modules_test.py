"""What a rehearsal says of modules and of optimizers: whose the memory is, and in which phase."""
import json
import unittest

from answer_test import Rehearsed

ADAM = """
    import torch
    net = torch.nn.Linear(4096, 4096).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    total = 0
    for _ in range(9):
        loss = net(torch.randn(8, 4096, device="cuda")).mean()
        optimizer.zero_grad()
        loss.backward()
        {use}
        optimizer.step()
    """


class Optimizers(Rehearsed):
    def report(self, program, *options, **more):
        return json.loads(self.rehearsed(program, "--json", *options, **more).stdout)

    def test_work_between_backward_and_optimizer(self):
        """dcgan sums two losses there, and language models that of an epoch: it began the next forward pass, and Adam's
        states were activations, in no phase "optimizer"."""
        expected = self.report(ADAM.format(use="total = total + loss.detach()"))
        states = 2 * 4 * 4097 * 4096
        self.assertAlmostEqual(expected["at_peak"]["optimizer_bytes"], states, delta=512)
        self.assertEqual(expected["peak"]["phase"], "optimizer")
        for use in ("total = total + loss", "more = net(torch.randn(8, 4096, device='cuda'))"):
            found = self.report(ADAM.format(use=use))
            self.assertEqual(found["peak"]["phase"], "optimizer", use)
            self.assertEqual(found["at_peak"]["optimizer_bytes"], states, use)
            self.assertEqual([one["phase"] for one in found["by_phase"]],
                             [one["phase"] for one in expected["by_phase"]], use)

    def test_a_closure_is_not_the_optimizers(self):
        """Lightning runs the whole step as a closure of the optimizer: what it does there without a graph, as a
        frozen encoder, is forward."""
        found = self.report("""
            import torch
            frozen, net = torch.nn.Linear(512, 2048).cuda(), torch.nn.Linear(2048, 8).cuda()
            optimizer = torch.optim.Adam(net.parameters())
            def closure():
                optimizer.zero_grad()
                with torch.no_grad():
                    x = frozen(torch.randn(8192, 512, device="cuda")).relu()
                loss = net(x).mean(); loss.backward(); return loss
            for _ in range(9): optimizer.step(closure)
            """)
        self.assertEqual(found["peak"]["phase"], "forward")
        self.assertEqual(found["at_peak"]["optimizer_bytes"], 2 * 4 * 2049 * 8)

    def test_states_belong_to_the_module_of_their_parameter(self):
        """They carried the module that happened to run last."""
        found = self.report("""
            import torch
            net = torch.nn.ModuleDict({"wide": torch.nn.Linear(2048, 2048), "narrow": torch.nn.Linear(2048, 2)}).cuda()
            optimizer = torch.optim.Adam(net.parameters())
            for _ in range(9):
                net["narrow"](net["wide"](torch.randn(8, 2048, device="cuda"))).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            """)
        states = [one for one in found["biggest"] if one["category"] == "optimizer" and one["bytes"] > 1 << 20]
        self.assertEqual([one["module"] for one in states], ["wide", "wide"])


ATTENTION = """
    import torch
    from torch import nn
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.to_v, self.soft, self.out = nn.Linear(64, 64), nn.Softmax(-1), nn.Linear(2048, 8)
        def forward(self, x):
            v = self.to_v(x)
            return self.out(self.soft(v @ v.transpose(-1, -2)))
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = Attention()
        def forward(self, x): return {forward}
    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    for _ in range(9):
        net(torch.randn(8, 2048, 64, device="cuda")).sum().backward()
        optimizer.step(); optimizer.zero_grad()
    """


class Modules(Rehearsed):
    def held(self, program, *options, **more):
        found = json.loads(self.rehearsed(program, "--json", *options, **more).stdout)
        return {one["name"]: one["peak_bytes"] for one in found["by_module"]}

    def check_attention(self, forward):
        held = self.held(ATTENTION.format(forward=forward))
        scores = 8 * 2048 * 2048 * 4
        self.assertLess(held["attn.to_v"], 3 * 8 * 2048 * 64 * 4)  # its weight, its output and the gradients
        self.assertLess(scores, held["attn.soft"])
        self.assertLess(held["attn.out"], 2 * scores)
        self.assertLess(4 * scores, held["attn"])

    def test_a_modules_own_code(self):
        """An attention's products and its softmax, which has no parameters, were booked to the projection that ran
        before: 397 MiB, whose output is 4 MiB."""
        self.check_attention("self.attn(x)")

    def test_of_a_checkpoint(self):
        """The second forward pass, within the backward pass, is the modules' too."""
        for reentrant in (True, False):
            self.check_attention("torch.utils.checkpoint.checkpoint(self.attn, x.requires_grad_(), "
                                 f"use_reentrant={reentrant})")

    def test_sharded_modules_have_activations(self):
        """Under FSDP2, and tensor parallelism, only weights had a module."""
        program = """
            import torch, torch.distributed as dist
            from torch import nn
            from torch.distributed.fsdp import fully_shard
            dist.init_process_group("nccl")
            net = nn.Sequential(nn.Linear(64, 4096), nn.GELU(), nn.Linear(4096, 64)).cuda()
            {shard}
            optimizer = torch.optim.SGD(net.parameters(), lr=1)
            for _ in range(9):
                net(torch.randn(1024, 64, device="cuda")).sum().backward()
                optimizer.step(); optimizer.zero_grad()
            """
        tensor_parallel = ("from torch.distributed.tensor.parallel import *; "
                           "parallelize_module(net, dist.init_device_mesh('cuda', (2,)), "
                           "{'0': ColwiseParallel(), '2': RowwiseParallel()})")
        for shard, share in (("[fully_shard(one) for one in (net[0], net[2], net)]", 1), (tensor_parallel, 2)):
            held = self.held(program.format(shard=shard), "--ranks", "2")
            for name in ("0", "1"):
                self.assertGreaterEqual(held[name], 4 * 1024 * 4096 // share, shard)

    def test_a_wrapped_module_is_one(self):
        """Lightning's Fabric keeps the model under two names, and `_original_module.fc1` was a module beside `fc1`."""
        try:
            import lightning
        except ImportError:
            self.skipTest("needs lightning")
        held = self.held("""
            import torch, lightning
            fabric = lightning.Fabric(accelerator="cuda", devices=1)
            net = torch.nn.Sequential(torch.nn.Linear(64, 64))
            net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=1))
            for _ in range(9):
                fabric.backward(net(torch.randn(1024, 64, device="cuda")).sum())
                optimizer.step(); optimizer.zero_grad()
            """)
        self.assertEqual(set(held), {"", "0"})


if __name__ == "__main__":
    unittest.main()
