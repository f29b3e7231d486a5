"""Follows the FSDP2 example of pytorch/examples: a small Transformer built on the meta device, fully_shard on
every block and on the whole, optional mixed precision and explicit prefetching, under torchrun; the full
state is gathered and saved by rank 0."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     set_model_state_dict)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.wq, self.wk = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.wv, self.wo = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        bsz, seq_len, dim = x.shape
        shape = (bsz, seq_len, self.n_heads, dim // self.n_heads)
        q, k, v = (w(x).view(shape).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        output = F.scaled_dot_product_attention(q, k, v)
        return self.wo(output.transpose(1, 2).contiguous().view(bsz, seq_len, dim))


class TransformerBlock(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(dim), Attention(dim, n_heads)
        self.ffn_norm = nn.LayerNorm(dim)
        self.w1, self.w2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.w2(F.gelu(self.w1(self.ffn_norm(h))))


class Transformer(nn.Module):
    def __init__(self, n_layers, vocab_size, max_seq_len, dim, n_heads):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab_size, dim)
        self.pos_embeddings = nn.Embedding(max_seq_len, dim)
        self.layers = nn.ModuleList([TransformerBlock(dim, n_heads) for _ in range(n_layers)])
        self.norm, self.output = nn.LayerNorm(dim), nn.Linear(dim, vocab_size, bias=False)

    def reset_parameters(self):
        for module in self.modules():
            if isinstance(module, (nn.Embedding, nn.Linear, nn.LayerNorm)):
                module.reset_parameters()

    def forward(self, tokens):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        h = self.tok_embeddings(tokens) + self.pos_embeddings(positions)
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h)).float()


def set_modules_to_prefetch(model, ahead):
    layers = list(model.layers)
    for i, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[i + 1:i + 1 + ahead])
        layer.set_modules_to_backward_prefetch(layers[max(i - ahead, 0):i][::-1])


def main(args):
    rank = int(os.environ["LOCAL_RANK"])
    if torch.accelerator.is_available():
        device = torch.device(f"{torch.accelerator.current_accelerator().type}:{rank}")
        torch.accelerator.set_device_index(rank)
    else:
        device = torch.device("cpu")
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend=backend, device_id=device if device.type == "cuda" else None)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)

    with torch.device("meta"):
        model = Transformer(args.n_layers, args.vocab_size, args.seq_len, args.dim, args.n_heads)
    fsdp_kwargs = {}
    if args.mixed_precision:
        fsdp_kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                                        reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
    assert isinstance(model, FSDPModule)
    if args.explicit_prefetching:
        set_modules_to_prefetch(model, ahead=2)
    model.to_empty(device=device)
    model.reset_parameters()
    if args.load:
        loaded = torch.load(args.load, mmap=True, map_location="cpu") if dist.get_rank() == 0 else {}
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model=model, model_state_dict=loaded, options=options)
    optim = torch.optim.Adam(model.parameters(), lr=1e-2)

    for step in range(1, args.steps + 1):
        if args.explicit_prefetching:
            model.unshard()
        x = torch.randint(0, args.vocab_size, (args.batch_size, args.seq_len), device=device)
        logits = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), x.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optim.step()
        optim.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item()!r}", flush=True)

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model=model, options=options)
    if dist.get_rank() == 0:
        torch.save(state, os.path.join(args.out, "model_state_dict.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="FSDP2 example")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", default="", help="a saved model_state_dict.pt to start from")
    parser.add_argument("--mixed-precision", action="store_true")
    parser.add_argument("--explicit-prefetching", action="store_true")
    parser.add_argument("--n_layers", type=int, default=3)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--n_heads", type=int, default=4)
    parser.add_argument("--vocab_size", type=int, default=256)
    parser.add_argument("--seq_len", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=4)
    main(parser.parse_args())
