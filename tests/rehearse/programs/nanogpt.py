"""Trains a small GPT the way nanoGPT's train.py does: data in a memory-mapped file, batches copied from
pinned memory, micro steps of accumulation, autocast and a gradient scaler, a fused AdamW on CUDA,
torch.compile on CUDA, regular estimates of the loss, one checkpoint that is overwritten, and DDP if torchrun
started it."""

import argparse
import contextlib
import inspect
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
                                 nn.Dropout(dropout))
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0,
                                           is_causal=True)
        y = y.transpose(1, 2).contiguous().view(b, t, c)
        x = x + self.resid_dropout(self.c_proj(y))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size, block_size, n_layer, n_head, n_embd, dropout):
        super().__init__()
        self.block_size = block_size
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        self.h = nn.ModuleList([Block(n_embd, n_head, dropout) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self.init_weights)

    def init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        return logits, loss

    def configure_optimizers(self, weight_decay, learning_rate, betas, fused):
        params = [p for p in self.parameters() if p.requires_grad]
        groups = [{"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
                  {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
        available = "fused" in inspect.signature(torch.optim.AdamW).parameters
        extra = {"fused": True} if fused and available else {}
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, **extra)


def parse():
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"],
                        default="float32" if not cuda else "bfloat16" if torch.cuda.is_bf16_supported()
                        else "float16")
    parser.add_argument("--compile", type=int, default=int(cuda))
    parser.add_argument("--fused", type=int, default=int(cuda), help="the fused AdamW")
    parser.add_argument("--init_from", choices=["scratch", "resume"], default="scratch")
    parser.add_argument("--eval_interval", type=int, default=5)
    parser.add_argument("--eval_iters", type=int, default=2)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--block_size", type=int, default=64)
    parser.add_argument("--n_layer", type=int, default=2)
    parser.add_argument("--n_head", type=int, default=4)
    parser.add_argument("--n_embd", type=int, default=64)
    parser.add_argument("--vocab_size", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--grad_clip", type=float, default=1.0)
    return parser.parse_args()


def main():
    args = parse()
    device, accumulation = args.device, args.gradient_accumulation_steps
    ddp = int(os.environ.get("RANK", -1)) != -1
    rank, world = 0, 1
    if ddp:
        dist.init_process_group(backend="nccl" if torch.cuda.is_available() else "gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
        if torch.cuda.is_available():
            device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(device)
        assert accumulation % world == 0
        accumulation //= world
    master = rank == 0
    os.makedirs(args.out, exist_ok=True)
    torch.manual_seed(args.seed + rank)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    device_type = "cuda" if "cuda" in device else "cpu"
    ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[args.dtype]
    ctx = (contextlib.nullcontext() if device_type == "cpu" or args.dtype == "float32"
           else torch.amp.autocast(device_type=device_type, dtype=ptdtype))

    if master:
        rng = np.random.default_rng(0)
        for name, size in (("train", 20000), ("val", 4000)):
            walk = np.cumsum(rng.integers(0, 5, size)) % args.vocab_size
            walk.astype(np.uint16).tofile(os.path.join(args.out, name + ".bin"))
    if ddp:
        dist.barrier()

    def get_batch(split):
        data = np.memmap(os.path.join(args.out, split + ".bin"), dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - args.block_size, (args.batch_size,))
        x = torch.stack([torch.from_numpy(data[i:i + args.block_size].astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + args.block_size].astype(np.int64)) for i in ix])
        if device_type == "cuda":
            return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
        return x.to(device), y.to(device)

    model_args = {name: getattr(args, name)
                  for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd", "dropout")}
    path = os.path.join(args.out, "ckpt.pt")
    iter_num, best_val_loss, checkpoint = 0, 1e9, None
    if args.init_from == "resume":
        checkpoint = torch.load(path, map_location=device, weights_only=False)
        model_args.update(checkpoint["model_args"])
    model = GPT(**model_args)
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
    model.to(device)
    scaler = torch.amp.GradScaler(device_type, enabled=args.dtype == "float16")
    optimizer = model.configure_optimizers(0.1, args.learning_rate, (0.9, 0.95), args.fused)
    if checkpoint is not None:
        optimizer.load_state_dict(checkpoint["optimizer"])
    checkpoint = None
    if args.compile:
        model = torch.compile(model)
    raw_model = model
    if ddp:
        model = DDP(model, device_ids=[int(os.environ["LOCAL_RANK"])] if device_type == "cuda" else None)
        raw_model = model.module

    @torch.no_grad()
    def estimate_loss():
        out = {}
        model.eval()
        for split in ("train", "val"):
            losses = torch.zeros(args.eval_iters)
            for k in range(args.eval_iters):
                x, y = get_batch(split)
                with ctx:
                    _, loss = model(x, y)
                losses[k] = loss.item()
            out[split] = losses.mean()
        model.train()
        return out

    def get_lr(it, warmup=2, minimum=1e-4):
        if it < warmup:
            return args.learning_rate * (it + 1) / (warmup + 1)
        ratio = min((it - warmup) / max(args.steps - warmup, 1), 1.0)
        return minimum + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (args.learning_rate - minimum)

    X, Y = get_batch("train")
    t0 = time.time()
    while True:
        for group in optimizer.param_groups:
            group["lr"] = get_lr(iter_num)
        if iter_num % args.eval_interval == 0 and master:
            losses = estimate_loss()
            print(f"eval {iter_num} train {losses['train']:.4f} val {losses['val']:.4f}")
            if losses["val"] < best_val_loss and iter_num > 0:
                best_val_loss = losses["val"]
                inner = getattr(raw_model, "_orig_mod", raw_model)
                torch.save({"model": inner.state_dict(), "optimizer": optimizer.state_dict(),
                            "model_args": model_args, "iter_num": iter_num, "best_val_loss": best_val_loss,
                            "config": vars(args)}, path)
        if iter_num >= args.steps:
            break
        for micro_step in range(accumulation):
            if ddp:
                model.require_backward_grad_sync = micro_step == accumulation - 1
            with ctx:
                _, loss = model(X, Y)
                loss = loss / accumulation
            X, Y = get_batch("train")
            scaler.scale(loss).backward()
        if args.grad_clip != 0.0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        iter_num += 1
        t1 = time.time()
        dt, t0 = t1 - t0, t1
        if master:
            print(f"step {iter_num} loss {loss.item() * accumulation!r}  ({dt * 1000:.0f} ms)", flush=True)
    if ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
