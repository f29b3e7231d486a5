"""A hand-written loop as many research repositories have it: accumulation of gradients, an EMA copy of the
model, clipping, warm-up and a cosine schedule, optional autocast with a GradScaler, and checkpoints of which
the last two are kept and from which it can go on."""

import argparse
import copy
import glob
import math
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, channels, dropout):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        return x + self.conv2(self.dropout(F.silu(self.norm2(h))))


def build_model(channels=16, classes=10, dropout=0.1):
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), Residual(channels, dropout), nn.AvgPool2d(2),
                         Residual(channels, dropout), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels, classes))


@torch.no_grad()
def update_ema(ema, model, decay):
    for old, new in zip(ema.parameters(), model.parameters()):
        old.lerp_(new, 1 - decay)
    for old, new in zip(ema.buffers(), model.buffers()):
        old.copy_(new)


def cycle(loader):
    while True:
        yield from loader


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--ema-decay", type=float, default=0.99)
    parser.add_argument("--amp", choices=["none", "fp16", "bf16"], default="none")
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--keep", type=int, default=2, help="how many checkpoints stay")
    parser.add_argument("--resume", default=None, help="a checkpoint's path")
    return parser.parse_args()


def main():
    args = get_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    device = torch.device(args.device)

    gen = torch.Generator().manual_seed(0)
    images, labels = torch.randn(256, 3, 16, 16, generator=gen), torch.randint(0, 10, (256,), generator=gen)
    loader = DataLoader(TensorDataset(images, labels), args.batch_size, shuffle=True, drop_last=True,
                        pin_memory=device.type == "cuda")
    model = build_model().to(device)
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)

    def factor(step):
        if step < args.warmup:
            return (step + 1) / args.warmup
        done = (step - args.warmup) / max(1, args.steps - args.warmup)
        return 0.5 * (1 + math.cos(math.pi * done))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    amp_dtype = {"none": None, "fp16": torch.float16, "bf16": torch.bfloat16}[args.amp]
    scaler = torch.amp.GradScaler(device.type, enabled=args.amp == "fp16")

    step = 0
    if args.resume:
        state = torch.load(args.resume, map_location=device)
        for name, thing in (("model", model), ("ema", ema), ("optimizer", optimizer),
                            ("scheduler", scheduler),
                            ("scaler", scaler)):
            thing.load_state_dict(state[name])
        step = state["step"]

    batches = cycle(loader)
    model.train()
    while step < args.steps:
        total = 0.0
        optimizer.zero_grad(set_to_none=True)
        for _ in range(args.accumulate):
            x, y = next(batches)
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=amp_dtype, enabled=amp_dtype is not None):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.1) / args.accumulate
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        update_ema(ema, model, args.ema_decay)
        step += 1
        print(f"step {step} loss {total!r} norm {norm.item():.4f} lr {scheduler.get_last_lr()[0]:.2e}",
              flush=True)
        if step % args.save_every == 0 or step == args.steps:
            torch.save({"model": model.state_dict(), "ema": ema.state_dict(),
                        "optimizer": optimizer.state_dict(),
                        "scheduler": scheduler.state_dict(), "scaler": scaler.state_dict(), "step": step},
                       os.path.join(args.out, f"step_{step:06d}.pt"))
            for old in sorted(glob.glob(os.path.join(args.out, "step_*.pt")))[:-args.keep]:
                os.remove(old)
    with torch.no_grad():
        x = images[:64].to(device)
        print("accuracy", (ema(x).argmax(1).cpu() == labels[:64]).float().mean().item())


if __name__ == "__main__":
    main()
