"""Trainings whose step is a function: rehearsed as a script, and dry-run as that function.

    python steps.py gpt     trains on CUDA, step after step"""
import sys

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).split(width, 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, words=5000, width=256, layers=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(layers)])
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def trained(model, optimizer, loss_of):
    def step():
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, step


def gpt(device):
    model = Gpt().to(device)
    ids = torch.randint(5000, (8, 256)).to(device)
    return trained(model, torch.optim.AdamW(model.parameters(), fused=True),
                   lambda: F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()))


def gpt_amp(device):
    model = Gpt().to(device)
    ids = torch.randint(5000, (8, 256)).to(device)

    def loss():
        with torch.autocast(ids.device.type, torch.bfloat16):
            return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    return trained(model, torch.optim.AdamW(model.parameters()), loss)


def checkpointed(device):
    from torch.utils.checkpoint import checkpoint
    model = Gpt().to(device)
    ids = torch.randint(5000, (8, 256)).to(device)

    def loss():
        x = model.words(ids)
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return F.cross_entropy(model.head(x).flatten(0, 1), ids.flatten())
    return trained(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), loss)


def convolutions(device):
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(device)
    images, labels = torch.randn(32, 3, 64, 64).to(device), torch.randint(10, (32,)).to(device)
    return trained(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                   lambda: F.cross_entropy(model(images), labels))


def recurrent(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.LSTM(64, 128, 2, batch_first=True), nn.Linear(128, 10)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    model = Net().to(device)
    x, labels = torch.randn(16, 50, 64).to(device), torch.randint(10, (16,)).to(device)
    return trained(model, torch.optim.Adam(model.parameters()), lambda: F.cross_entropy(model(x), labels))


def experts(device):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(64, 4)
            self.experts = nn.ModuleList([nn.Linear(64, 64) for _ in range(4)])

        def forward(self, x):
            weights, chosen = self.router(x).softmax(-1).topk(2, -1)
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                rows, places = torch.where(chosen == number)
                out = out.index_add(0, rows, expert(x[rows]) * weights[rows, places, None])
            return out

    model = Experts().to(device)
    x = torch.randn(512, 64).to(device)
    return trained(model, torch.optim.AdamW(model.parameters()), lambda: model(x).square().mean())


def graph(device):
    model = nn.ModuleList([nn.Linear(64, 128), nn.Linear(128, 7)]).to(device)
    x = torch.randn(1000, 64).to(device)
    edges = torch.randint(1000, (2, 20000)).to(device)
    labels = torch.randint(7, (1000,)).to(device)

    def spread(x):
        return torch.zeros_like(x).index_add_(0, edges[1], x[edges[0]])
    return trained(model, torch.optim.Adam(model.parameters()),
                   lambda: F.cross_entropy(model[1](spread(model[0](spread(x)).relu())), labels))


def adapted(device):
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=4,
                         vocab_size=1000)
    model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    model.to(device)
    ids = torch.randint(1000, (4, 128)).to(device)
    chosen = [one for one in model.parameters() if one.requires_grad]
    return trained(model, torch.optim.AdamW(chosen), lambda: model(input_ids=ids, labels=ids).loss)


STEPS = (gpt, gpt_amp, checkpointed, convolutions, recurrent, experts, graph, adapted)

if __name__ == "__main__":
    _, train_step = globals()[sys.argv[1]]("cuda")
    for _ in range(100):
        train_step()
