"""What `headroom rehearse --spill` foretells, `headroom run --spill` does: on the smallest card that it names a training
ends, equal to the bit to one with all memory, and on a smaller one it does not."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import programs

SCRIPT = '''
import hashlib, torch
from torch import nn

torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True, dropout=0.1)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))

net = nn.Sequential(nn.Embedding(256, 128), *[Block(128) for _ in range(6)], nn.Linear(128, 256)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
numbers = torch.Generator().manual_seed(1)
for step in range(5):
    ids = torch.randint(0, 256, (16, 65), generator=numbers)
    logits = net(ids[:, :-1].cuda())
    nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten().cuda()).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print("weights", hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in net.parameters())).hexdigest())
'''


def headroom(*words):
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "train.py"
        script.write_text(SCRIPT, encoding="utf-8")
        return subprocess.run([str(programs.HEADROOM), *words, "--", sys.executable, str(script)], text=True,
                              capture_output=True, env={**programs.environment(), "OMP_NUM_THREADS": "1"}, timeout=600)


def weights_with(card_bytes):
    """None: it ran out of memory."""
    done = headroom("run", "--spill", "--gpus", f"sim:1x{card_bytes >> 10}KiB")
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("weights ")]
    return found[0] if found and done.returncode == 0 else None


class Floor(unittest.TestCase):
    def test_a_training_ends_above_it_and_not_below(self):
        done = headroom("rehearse", "--spill", "--json", "--gpus", "sim:1x60MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout.splitlines()[-1])["spill"]
        floor, needs = answer["floor_process_bytes"], answer["needs_process_bytes"]
        self.assertLess(floor, needs)
        self.assertTrue(answer["here"]["ends"])
        self.assertGreater(answer["here"]["moved_bytes"], 0)
        sizes = [one["process_bytes"] for one in answer["tried"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))
        self.assertEqual([one["ends"] for one in answer["tried"]], [size >= floor for size in sizes])
        self.assertTrue(all(one["refused"] == 0 for one in answer["tried"] if one["ends"]), "its last step is steady")
        whole = weights_with(2 * needs)
        self.assertIsNotNone(whole)
        for size in (needs, 60 << 20, floor):
            self.assertEqual(weights_with(size), whole, size)
        below = max(size for size in sizes if size < floor)
        self.assertIsNone(weights_with(below))


if __name__ == "__main__":
    unittest.main()
