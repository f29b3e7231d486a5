"""Follows DLRM: embedding bags for the sparse features, MLPs below and above, pairwise interactions; the
tables' gradients are dense by default and sparse with --sparse (SGD takes both, SparseAdam only sparse
ones)."""

import argparse
import os

import numpy as np
import torch
import torch.nn as nn


class DLRM(nn.Module):
    def __init__(self, table_sizes, dim, dense_features, sparse):
        super().__init__()
        self.emb_l = nn.ModuleList([nn.EmbeddingBag(n, dim, mode="sum", sparse=sparse) for n in table_sizes])
        for table in self.emb_l:
            bound = np.sqrt(1 / table.num_embeddings)
            nn.init.uniform_(table.weight, -bound, bound)
        self.bot_l = self.create_mlp([dense_features, 32, dim])
        features = len(table_sizes) + 1
        li, lj = zip(*[(i, j) for i in range(features) for j in range(i)])
        self.register_buffer("li", torch.tensor(li), persistent=False)
        self.register_buffer("lj", torch.tensor(lj), persistent=False)
        self.top_l = self.create_mlp([dim + len(li), 32, 16, 1], last=nn.Sigmoid())

    def create_mlp(self, sizes, last=None):
        layers = []
        for n, m in zip(sizes, sizes[1:]):
            layers += [nn.Linear(n, m), nn.ReLU()]
        if last is not None:
            layers[-1] = last
        return nn.Sequential(*layers)

    def forward(self, dense_x, lS_o, lS_i):
        x = self.bot_l(dense_x)
        ly = [table(indices, offsets) for table, indices, offsets in zip(self.emb_l, lS_i, lS_o)]
        T = torch.cat([x] + ly, dim=1).view(x.size(0), -1, x.size(1))
        Z = torch.bmm(T, T.transpose(1, 2))
        return self.top_l(torch.cat([x, Z[:, self.li, self.lj]], dim=1))


def make_batch(rng, args, table_sizes):
    dense = torch.from_numpy(rng.random((args.mini_batch_size, args.dense_features), dtype=np.float32))
    offsets, indices = [], []
    for size in table_sizes:
        counts = rng.integers(1, args.num_indices_per_lookup + 1, args.mini_batch_size)
        offsets.append(torch.from_numpy(np.concatenate([[0], np.cumsum(counts)[:-1]])))
        indices.append(torch.from_numpy(rng.integers(0, size, counts.sum())))
    target = torch.from_numpy(rng.integers(0, 2, (args.mini_batch_size, 1)).astype(np.float32))
    return dense, torch.stack(offsets), indices, target


def main():
    parser = argparse.ArgumentParser(description="Train a recommendation model")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--use-gpu", type=int, default=1, help="use a GPU where there is one")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=123)
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--optimizer", choices=["sgd", "adagrad", "sparse_adam"], default="sgd")
    parser.add_argument("--arch-embedding-size", default="1000-400-5000-60")
    parser.add_argument("--arch-sparse-feature-size", type=int, default=16)
    parser.add_argument("--dense-features", type=int, default=13)
    parser.add_argument("--num-indices-per-lookup", type=int, default=5)
    parser.add_argument("--mini-batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--test-freq", type=int, default=5)
    parser.add_argument("--load-model", default="")
    args = parser.parse_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    use_gpu = args.use_gpu and torch.cuda.is_available()
    if use_gpu:
        torch.cuda.manual_seed_all(args.seed)
        torch.backends.cudnn.deterministic = True
        device = torch.device("cuda", 0)
        print(f"Using {torch.cuda.device_count()} GPU(s)...")
    else:
        device = torch.device("cpu")
        print("Using CPU...")

    rng = np.random.default_rng(args.seed)
    sizes = [int(n) for n in args.arch_embedding_size.split("-")]
    test = [make_batch(rng, args, sizes) for _ in range(2)]
    dlrm = DLRM(sizes, args.arch_sparse_feature_size, args.dense_features, args.sparse).to(device)
    loss_fn = nn.BCELoss(reduction="mean")
    dense_params = [p for n, p in dlrm.named_parameters() if not n.startswith("emb_l")]
    if args.optimizer == "sparse_adam":
        optimizers = [torch.optim.SparseAdam(dlrm.emb_l.parameters(), lr=1e-3),
                      torch.optim.Adam(dense_params)]
    elif args.optimizer == "adagrad":
        optimizers = [torch.optim.Adagrad(dlrm.parameters(), lr=args.learning_rate)]
    else:
        optimizers = [torch.optim.SGD(dlrm.parameters(), lr=args.learning_rate)]
    if args.load_model:
        dlrm.load_state_dict(torch.load(args.load_model, map_location=device)["state_dict"])

    def wrap(batch):
        dense, offsets, indices, target = batch
        return dense.to(device), offsets.to(device), [i.to(device) for i in indices], target.to(device)

    best = 0.0
    for step in range(1, args.steps + 1):
        dense, offsets, indices, target = wrap(make_batch(rng, args, sizes))
        loss = loss_fn(dlrm(dense, offsets, indices), target)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if step % args.test_freq == 0:
            dlrm.eval()
            right = total = 0
            with torch.no_grad():
                for batch in test:
                    dense, offsets, indices, target = wrap(batch)
                    right += ((dlrm(dense, offsets, indices) > 0.5).float() == target).sum().item()
                    total += len(target)
            dlrm.train()
            print(f"test accuracy {right / total:.4f}, best {best:.4f}")
            if right / total > best:
                best = right / total
                torch.save({"iter": step, "test_acc": best, "state_dict": dlrm.state_dict(),
                            "opt_state_dict": [o.state_dict() for o in optimizers]},
                           os.path.join(args.out, "dlrm.pt"))


if __name__ == "__main__":
    main()
