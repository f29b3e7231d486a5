"""Trains a small mixture of experts: Mixtral built from a configuration with its auxiliary routing loss (the
default), or a hand-written top-k router that sends each expert only its own tokens, so that shapes depend on
the data."""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import MixtralConfig, MixtralForCausalLM


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TopKMoE(nn.Module):
    def __init__(self, width, hidden, experts, k):
        super().__init__()
        self.k = k
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([Expert(width, hidden) for _ in range(experts)])
        self.balance = torch.zeros(())

    def forward(self, x):
        flat = x.view(-1, x.size(-1))
        probs = self.router(flat).softmax(-1)
        weights, chosen = probs.topk(self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        share = torch.zeros_like(probs[0])
        for n, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == n)
            share[n] = rows.numel() / chosen.numel()
            if rows.numel():
                out.index_add_(0, rows, expert(flat[rows]) * weights[rows, slot, None])
        self.balance = len(self.experts) * (share * probs.mean(0)).sum()
        return out.view_as(x)


class Layer(nn.Module):
    def __init__(self, width, heads, experts, k):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True, bias=False)
        self.moe = TopKMoE(width, 2 * width, experts, k)

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.moe(self.norm2(x))


class OwnMoE(nn.Module):
    def __init__(self, vocab, width, layers, heads, experts, k):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([Layer(width, heads, experts, k) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(1), device=tokens.device)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        return loss + 0.02 * torch.stack([layer.moe.balance for layer in self.layers]).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--router", choices=["mixtral", "own"], default="mixtral")
    parser.add_argument("--experts", type=int, default=4)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    vocab = 128
    if args.router == "mixtral":
        config = MixtralConfig(
            vocab_size=vocab, hidden_size=args.width, intermediate_size=2 * args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=4, num_key_value_heads=2, num_local_experts=args.experts, sliding_window=None,
            num_experts_per_tok=args.top_k, output_router_logits=True,
            max_position_embeddings=2 * args.length)
        model = MixtralForCausalLM(config)
    else:
        model = OwnMoE(vocab, args.width, args.layers, 4, args.experts, args.top_k)
    model.to(args.device).train()
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.steps)
    data = torch.randint(0, vocab, (64, args.length), generator=torch.Generator().manual_seed(0))

    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(data), (args.batch_size,))
        tokens = data[rows].to(args.device)
        loss = model(input_ids=tokens, labels=tokens).loss if args.router == "mixtral" else model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item()!r}", flush=True)
    if args.router == "mixtral":
        model.save_pretrained(os.path.join(args.out, "final"))
    else:
        torch.save(model.state_dict(), os.path.join(args.out, "final.pt"))


if __name__ == "__main__":
    main()
