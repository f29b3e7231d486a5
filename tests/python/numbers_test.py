"""In compute mode a simulated card has the CPU's results; when it is too small, a real
torch.OutOfMemoryError comes, and all memory is back afterwards."""
import gc
import unittest

import torch
import transformers
from torch import nn
from torch.nn import functional as F

import headroom

STEPS = 10


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=512, n_positions=64)
    return transformers.GPT2LMHeadModel(config)


def gpt2_loss(model, step):
    ids = torch.randint(0, 512, (4, 32), generator=torch.Generator().manual_seed(step))
    ids = ids.to(model.device)
    return model(input_ids=ids, labels=ids, attention_mask=torch.ones_like(ids)).loss


def resnet():
    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2],
                                       layer_type="basic", num_labels=10)
    return transformers.ResNetForImageClassification(config)


def resnet_loss(model, step):
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(4, 3, 32, 32, generator=generator).to(model.device)
    labels = torch.randint(0, 10, (4,), generator=generator).to(model.device)
    return F.cross_entropy(model(pixel_values=images).logits, labels)


def train(make, loss_of, device):
    """Ten steps, from the same weights and random numbers: losses and weights."""
    torch.manual_seed(0)
    model = make().train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [one.detach().cpu() for one in model.state_dict().values()]


class ComputeMode(unittest.TestCase):
    def assert_like_the_cpu(self, make, loss_of):
        expected_losses, expected = train(make, loss_of, "cpu")
        with headroom.simulate("24GiB", mode="compute", rules="cpu"):
            losses, weights = train(make, loss_of, "sim")
        self.assertEqual(losses, expected_losses)
        for one, other in zip(weights, expected):
            self.assertTrue(torch.equal(one, other))

    def test_gpt2_with_dropout(self):
        self.assert_like_the_cpu(gpt2, gpt2_loss)

    def test_a_resnet(self):
        self.assert_like_the_cpu(resnet, resnet_loss)


class TooSmall(unittest.TestCase):
    def run_out(self, mode):
        with headroom.simulate("200MiB", mode=mode):
            model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).to("sim")
            optimizer = torch.optim.AdamW(model.parameters())

            def step(rows):
                optimizer.zero_grad()
                model(torch.ones(rows, 1024, device="sim")).mean().backward()
                optimizer.step()

            step(8)
            held = torch.sim.memory_allocated()
            rows = 1 << 16
            tries = []
            while True:
                try:
                    step(rows)
                    break
                except torch.OutOfMemoryError as error:
                    self.assertIn("Tried to allocate", str(error))
                    self.assertTrue(headroom.is_oom(error))
                    tries.append(rows)
                optimizer.zero_grad()
                gc.collect()
                self.assertLessEqual(torch.sim.memory_allocated(), held)
                rows //= 2
            self.assertTrue(tries)
            del model, optimizer, step
            gc.collect()
            torch.sim.empty_cache()
            stats = headroom.get_gpu_memory_stats("sim")
            self.assertLessEqual(stats.allocated, 32 << 20, "cuBLAS's workspaces alone")

    def test_shape_only(self):
        self.run_out("shape-only")

    def test_computing(self):
        self.run_out("compute")


if __name__ == "__main__":
    unittest.main()
