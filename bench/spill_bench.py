#!/usr/bin/env python3
"""A training with less memory than it needs, in five ways: as it is, with headroom.spill(), with PyTorch's
save_on_cpu, with all blocks checkpointed, and with the batch that accelerate's find_executable_batch_size finds.
Figures, no gate.

    scripts/python.sh bench/spill_bench.py [--share 0.7]
    scripts/python.sh bench/spill_bench.py --cost 40

First a small GPT that computes: does it end, and are its weights equal to the bit? Then GPT-2 of 124M with its real
sizes on cards of the catalogue, by dry run: what moves, what is computed again, and the seconds of a step by the cost
model. Moves count in full, as if nothing ran beside them."""
import argparse
import json
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAYS = ("plain", "spill", "save_on_cpu", "checkpointing", "find_executable_batch_size")
CARDS = ("H100 PCIe", "H100", "RTX 4090")  # H100: of SXM boards


# ---- One training, in a process of its own ----

def net_of(sizes):
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            rows, tokens, width = x.shape
            q, k, v = (one.view(rows, tokens, self.heads, -1).transpose(1, 2)
                       for one in self.qkv(self.norm1(x)).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + nn.functional.dropout(self.out(y.transpose(1, 2).reshape(rows, tokens, width)), 0.1)
            return x + nn.functional.dropout(self.down(nn.functional.gelu(self.up(self.norm2(x)))), 0.1)

    class Gpt(nn.Module):
        def __init__(self, checkpoints):
            super().__init__()
            width = sizes["width"]
            self.checkpoints = checkpoints
            self.words, self.places = nn.Embedding(sizes["vocabulary"], width), nn.Embedding(sizes["tokens"], width)
            self.blocks = nn.ModuleList(Block(width, sizes["heads"]) for _ in range(sizes["layers"]))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, sizes["vocabulary"], bias=False)
            self.head.weight = self.words.weight

        def forward(self, ids):
            x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if self.checkpoints else block(x)
            logits = self.head(self.norm(x))
            return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    return Gpt


def run_one(order):
    import contextlib
    import hashlib

    import headroom
    import torch
    from headroom.masquerade import as_cuda

    way, sizes, computes = order["way"], order["sizes"], order["computes"]
    as_cuda(order["gpus"], "compute" if computes else "shape-only")
    if order["limit"]:
        torch.cuda.set_per_process_memory_fraction(order["limit"] / torch.cuda.mem_get_info()[1])
    moved = [0]  # this step

    def to_host(tensor):  # as save_on_cpu; a dry run's host has no room for what has no values
        moved[0] += tensor.nbytes
        return tensor.device, torch.empty_like(tensor, device="cpu" if computes else "meta").copy_(tensor)

    def from_host(packed):
        device, tensor = packed
        return tensor.to(device) if computes else torch.empty_like(tensor, device=device)

    def train(batch):
        torch.manual_seed(0)
        spill = headroom.spill("1TiB") if way == "spill" else None
        net = net_of(sizes)(way == "checkpointing").cuda()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        numbers = torch.Generator().manual_seed(1)
        for step in range(sizes["steps"]):
            last = step + 1 == sizes["steps"]
            moved[0], before = 0, spill.moved_bytes if spill else 0
            ids = torch.randint(0, sizes["vocabulary"], (sizes["batch"], sizes["tokens"]), generator=numbers).cuda()
            with (headroom.profile() if last and not computes else contextlib.nullcontext()) as profile:
                for rows in ids.split(batch):
                    with (torch.autograd.graph.saved_tensors_hooks(to_host, from_host)
                          if way == "save_on_cpu" else contextlib.nullcontext()):
                        loss = net(rows) * (len(rows) / len(ids))
                    loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            if spill:
                moved[0] = spill.moved_bytes - before
        rows = profile.rows if profile else []
        weights = hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in net.parameters())) if computes else None
        return {"batch": batch, "moved": int(moved[0]), "seconds": sum(one.self_device_s or 0 for one in rows),
                "operators": sum(one.calls for one in rows), "weights": weights and weights.hexdigest()}

    try:
        if way == "find_executable_batch_size":
            from accelerate.utils import find_executable_batch_size
            found = find_executable_batch_size(train, starting_batch_size=sizes["batch"])()
        else:
            found = train(sizes["batch"])
    except torch.OutOfMemoryError:
        return {"ends": False}
    except RuntimeError as error:  # accelerate, at a batch of none
        if "executable batch size" not in str(error):
            raise
        return {"ends": False}
    return {"ends": True, "reserved": torch.cuda.max_memory_reserved(), **found}


def cost(pairs):
    """Steps with headroom.spill() beside steps without, in turns: nothing is refused."""
    import contextlib
    import random
    import statistics
    import time

    import headroom
    import torch
    from headroom.masquerade import as_cuda

    as_cuda("sim:1x8GiB", "compute")
    sizes = dict(SMALL, width=256)
    torch.manual_seed(0)
    net = net_of(sizes)(False).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    ids = torch.randint(0, sizes["vocabulary"], (sizes["batch"], sizes["tokens"])).cuda()

    def step(spills):
        with headroom.spill() if spills else contextlib.nullcontext():
            begin = time.process_time()
            net(ids).backward()
            optimizer.step()
            optimizer.zero_grad()
            return time.process_time() - begin

    for _ in range(3):
        step(False), step(True)
    ratios, times = [], []
    for _ in range(pairs):
        first = random.random() < 0.5
        one = {spills: step(spills) for spills in (first, not first)}
        ratios.append(one[True] / one[False])
        times.append(one[False])
    print(f"{platform.machine()}, Python {platform.python_version()}: a step of {statistics.median(times):.3f} s (CPU time) "
          f"takes {statistics.median(ratios):.4f} x as long with headroom.spill() (median of {pairs} pairs; quartiles "
          f"{', '.join(f'{one:.4f}' for one in statistics.quantiles(ratios, n=4))})")


def child(**order):
    done = subprocess.run([sys.executable, __file__, "--one", json.dumps(order)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{order['way']}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# ---- The tables ----

SMALL = dict(width=128, heads=4, layers=6, vocabulary=512, tokens=128, batch=16, steps=4)
GPT2 = dict(width=768, heads=12, layers=12, vocabulary=50257, tokens=1024, batch=16, steps=5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", type=float, default=0.7, help="of the memory that the training needs")
    parser.add_argument("--cost", type=int, metavar="PAIRS", help="only the cost where nothing is refused")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cost:
        cost(options.cost)
        return
    if options.one:
        print(json.dumps(run_one(json.loads(options.one))))
        return
    print(f"{platform.node() and platform.machine()}, Python {platform.python_version()}, "
          f"{options.share:.0%} of what each training needs\n")
    whole = child(way="plain", sizes=SMALL, computes=True, gpus="sim:1x8GiB", limit=None)
    print(f"Computed: a GPT of {SMALL['layers']} layers, batch {SMALL['batch']}, which reserves "
          f"{whole['reserved'] / 2**20:.1f} MiB")
    for way in WAYS:
        got = child(way=way, sizes=SMALL, computes=True, gpus="sim:1x8GiB", limit=options.share * whole["reserved"])
        equal = "" if not got["ends"] else "equal to the bit" if got["weights"] == whole["weights"] else "other weights"
        print(f"  {way:28}{'ends' if got['ends'] else 'out of memory':15}{equal}", flush=True)
    listed = subprocess.run([ROOT / "build/bin/headroom", "cards", "--json"], capture_output=True, text=True, check=True)
    links = {one["short"]: one["link"]["pcie_bytes_per_s"] for one in json.loads(listed.stdout)["cards"]}
    for name, link in ((name, links[name]) for name in CARDS):
        whole = child(way="plain", sizes=GPT2, computes=False, gpus=f"sim:1x{name}", limit=None)
        print(f"\nGPT-2 124M, batch {GPT2['batch']} x {GPT2['tokens']}, float32, on {name} "
              f"({link / 1e9:g} GB/s to the host): reserves {whole.get('reserved', 0) / 2**30:.2f} GiB")
        if not whole["ends"]:
            print("  does not fit the card")
            continue
        for way in WAYS:  # PyTorch's own hooks compute the same as no hooks: they take that time
            got = child(way=way, sizes=GPT2, computes=False, gpus=f"sim:1x{name}",
                        limit=options.share * whole["reserved"])
            if not got["ends"]:
                print(f"  {way:28}out of memory", flush=True)
                continue
            moving = 2 * got["moved"] / link
            if way == "save_on_cpu":
                got["seconds"] = whole["seconds"]
            print(f"  {way:28}moves {got['moved'] / 2**30:6.2f} GiB a step, {got['operators']:5} operators "
                  f"({got['operators'] - whole['operators']:+}), {got['seconds']:.3f} s + {moving:.3f} s of moves = "
                  f"{(got['seconds'] + moving) / whole['seconds']:.2f} x all memory", flush=True)


if __name__ == "__main__":
    main()
