"""Trains a small GPT with Lightning Fabric in the manner of LitGPT's pretraining: fabric.setup,
no_backward_sync for accumulation, fabric.clip_gradients, and fabric.save of a state dictionary from which it
can resume."""

import argparse
import math
import os
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.norm_1, self.norm_2 = nn.RMSNorm(n_embd), nn.RMSNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd, bias=False), nn.Linear(n_embd, n_embd, bias=False)
        self.fc_1, self.fc_2 = (nn.Linear(n_embd, 3 * n_embd, bias=False) for _ in range(2))
        self.fc_out = nn.Linear(3 * n_embd, n_embd, bias=False)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        q, k = self.rope(q, cos, sin), self.rope(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        h = self.norm_2(x)
        return x + self.fc_out(F.silu(self.fc_1(h)) * self.fc_2(h))

    @staticmethod
    def rope(x, cos, sin):
        x1, x2 = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-x2, x1), dim=-1) * sin


class GPT(nn.Module):
    def __init__(self, vocab=128, block_size=64, n_layer=2, n_head=4, n_embd=64):
        super().__init__()
        self.wte = nn.Embedding(vocab, n_embd)
        self.h = nn.ModuleList([Block(n_embd, n_head) for _ in range(n_layer)])
        self.ln_f, self.lm_head = nn.RMSNorm(n_embd), nn.Linear(n_embd, vocab, bias=False)
        size = n_embd // n_head
        theta = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(block_size).float(), theta).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, idx):
        T = idx.size(1)
        x = self.wte(idx)
        for block in self.h:
            x = block(x, self.cos[:T], self.sin[:T])
        return self.lm_head(self.ln_f(x))


def get_lr(args, step):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    done = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@torch.no_grad()
def validate(fabric, model, loader):
    model.eval()
    losses = [F.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()) for (t,) in loader]
    model.train()
    return fabric.all_reduce(torch.stack(losses).mean()).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--precision", default="32-true", help="also bf16-mixed, bf16-true, 16-mixed")
    parser.add_argument("--micro_batch_size", type=int, default=4)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--save_interval", type=int, default=5)
    parser.add_argument("--resume", default=None, help="a checkpoint's path")
    args = parser.parse_args()
    fabric = L.Fabric(accelerator=args.accelerator, devices=args.devices, precision=args.precision)
    fabric.launch()
    fabric.seed_everything(args.seed)
    os.makedirs(args.out, exist_ok=True)

    tokens = torch.randint(0, 128, (72, 65), generator=torch.Generator().manual_seed(0))
    train = DataLoader(TensorDataset(tokens[:64]), batch_size=args.micro_batch_size, shuffle=True,
                       drop_last=True)
    val = DataLoader(TensorDataset(tokens[64:]), batch_size=args.micro_batch_size)
    train, val = fabric.setup_dataloaders(train, val)
    with fabric.init_module(empty_init=False):
        model = GPT()
    model = fabric.setup(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    optimizer = fabric.setup_optimizers(optimizer)
    state = {"model": model, "optimizer": optimizer, "iter_num": 0, "step_count": 0}
    if args.resume:
        fabric.load(args.resume, state)

    total, t0 = 0.0, time.perf_counter()
    while state["step_count"] < args.steps:
        for (batch,) in train:
            state["iter_num"] += 1
            for group in optimizer.param_groups:
                group["lr"] = get_lr(args, state["step_count"])
            accumulating = state["iter_num"] % args.accumulate != 0
            with fabric.no_backward_sync(model, enabled=accumulating):
                logits = model(batch[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                fabric.backward(loss / args.accumulate)
            total += loss.item() / args.accumulate
            if accumulating:
                continue
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            state["step_count"] += 1
            fabric.print(f"step {state['step_count']} loss {total!r}", flush=True)
            total = 0.0
            if state["step_count"] % args.save_interval == 0:
                fabric.print(f"val loss {validate(fabric, model, val):.4f} {time.perf_counter() - t0:.2f}s")
                fabric.save(os.path.join(args.out, "last.ckpt"), state)
            if state["step_count"] == args.steps:
                break


if __name__ == "__main__":
    main()
