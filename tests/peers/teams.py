"""Judges training on several cards: PyTorch's DistributedDataParallel on four processes, and its pipelines' Schedule1F1B on two
and four, train a small transformer in double from the same safetensors on the same rows. The losses of 20 steps may differ by
1e-10.

  teams.py PROGRAM    PROGRAM: the built team_losses

Exits with 1 if a loss differs.
"""
import os
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

STEPS, ROWS, VOCABULARY, WIDTH, HEADS, LAYERS, NEAR = 20, 16, 50, 32, 4, 4, 1e-10


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        rows, length, _ = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.down(gelu(self.up(self.after(x))))


def net(folder=None):
    made = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *(Layer() for _ in range(LAYERS)),
                         nn.Linear(WIDTH, VOCABULARY)).double()
    if folder:
        made.load_state_dict(load_file(f"{folder}/net.safetensors"))
    return made


def loss_of(logits, tokens):
    return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def rank_of(rank, size, kind, folder, out):
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{out}.store", rank=rank, world_size=size)
    tokens = load_file(f"{folder}/batch.safetensors")["tokens"]
    module, losses = net(folder), []
    if kind == "ddp":
        tokens = tokens.chunk(size)[rank]
        module = nn.parallel.DistributedDataParallel(module)
    else:
        each = (LAYERS + 2) / size
        module = module[round(rank * each):round((rank + 1) * each)]
        stage = PipelineStage(module, rank, size, torch.device("cpu"))
        schedule = Schedule1F1B(stage, n_microbatches=ROWS // 2, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        if kind == "ddp":
            loss = loss_of(module(tokens), tokens)
            loss.backward()
            loss = loss.detach()
            dist.all_reduce(loss)
            losses.append(loss.item() / size)
        else:
            of_parts = []
            given = {"target": tokens, "losses": of_parts} if rank == size - 1 else {}
            schedule.step(*([tokens] if rank == 0 else []), **given)
            losses.append(sum(loss.item() for loss in of_parts) / max(len(of_parts), 1))
        optimizer.step()
    if rank == size - 1:
        with open(out, "w") as file:
            file.write("\n".join(repr(loss) for loss in losses))
    dist.barrier()
    dist.destroy_process_group()


def losses_of_pytorch(kind, size, folder):
    out = os.path.join(folder, f"{kind}-{size}")
    mp.spawn(rank_of, (size, kind, folder, out), nprocs=size)
    return [float(line) for line in open(out)]


def losses_of_headroom(folder, *words):
    done = subprocess.run([sys.argv[1], folder, *map(str, words), str(STEPS)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return [float(line) for line in done.stdout.split()]


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(1)
        save_file(net().state_dict(), f"{folder}/net.safetensors")
        save_file({"tokens": torch.randint(VOCABULARY, (ROWS, 24))}, f"{folder}/batch.safetensors")
        theirs = {(kind, size): losses_of_pytorch(kind, size, folder)
                  for kind, size in (("ddp", 4), ("1f1b", 2), ("1f1b", 3))}
        for judge, words in ((("ddp", 4), (4, 1, "1f1b", ROWS // 4)), (("1f1b", 2), (1, 2, "1f1b", 2)),
                             (("1f1b", 3), (1, 3, "1f1b", 2)), (("1f1b", 3), (1, 3, "gpipe", 2)),
                             (("ddp", 4), (2, 2, "1f1b", 2))):
            losses, ours = theirs[judge], losses_of_headroom(folder, *words)
            assert len(losses) == len(ours) == STEPS and losses[-1] < losses[0] - 0.1, losses
            worst = max(abs(one - other) for one, other in zip(losses, ours))
            is_right = worst <= NEAR
            failures += not is_right
            print(f"{'ok      ' if is_right else 'FAILED  '}{judge[0]} on {judge[1]} processes, and Headroom with "
                  f"replicas={words[0]} stages={words[1]} {words[2]}: losses differ by {worst:.1e}")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
