"""Follows PyTorch Geometric's gcn.py and gat.py: full-batch node classification on a random graph with masks
for training, validation and test; --big makes a graph with more than 200,000 edges."""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv


def random_graph(nodes, edges, features, classes):
    gen = torch.Generator().manual_seed(0)
    y = torch.randint(0, classes, (nodes,), generator=gen)
    x = torch.rand(nodes, features, generator=gen) + F.one_hot(y, features).float()
    edge_index = torch.randint(0, nodes, (2, edges // 2), generator=gen)
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    split = torch.rand(nodes, generator=gen)
    return Data(x=x, edge_index=edge_index, y=y, train_mask=split < 0.6,
                val_mask=(split >= 0.6) & (split < 0.8),
                test_mask=split >= 0.8)


class GCN(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels, cached=True)
        self.conv2 = GCNConv(hidden_channels, out_channels, cached=True)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index)


class GAT(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels, heads):
        super().__init__()
        self.conv1 = GATConv(in_channels, hidden_channels, heads, dropout=0.6)
        self.conv2 = GATConv(hidden_channels * heads, out_channels, heads=1, concat=False, dropout=0.6)

    def forward(self, x, edge_index):
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10, help="epochs, each of one optimizer step")
parser.add_argument("--out", default="out")
parser.add_argument("--seed", type=int, default=12345)
parser.add_argument("--model", choices=["gcn", "gat"], default="gcn")
parser.add_argument("--hidden_channels", type=int, default=16)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--nodes", type=int, default=500)
parser.add_argument("--edges", type=int, default=4000)
parser.add_argument("--big", action="store_true", help="20,000 nodes and 240,000 edges")
args = parser.parse_args()
if args.big:
    args.nodes, args.edges = 20_000, 240_000

if torch.cuda.is_available():
    device = torch.device("cuda")
else:
    device = torch.device("cpu")
torch.manual_seed(args.seed)
os.makedirs(args.out, exist_ok=True)

classes, features = 7, 64
data = random_graph(args.nodes, args.edges, features, classes).to(device)
if args.model == "gcn":
    model = GCN(features, args.hidden_channels, classes).to(device)
    optimizer = torch.optim.Adam([
        dict(params=model.conv1.parameters(), weight_decay=5e-4),
        dict(params=model.conv2.parameters(), weight_decay=0),
    ], lr=args.lr)
else:
    model = GAT(features, args.hidden_channels, classes, args.heads).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)


def train():
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def test():
    model.eval()
    pred = model(data.x, data.edge_index).argmax(dim=-1)
    accs = []
    for mask in [data.train_mask, data.val_mask, data.test_mask]:
        accs.append(int((pred[mask] == data.y[mask]).sum()) / int(mask.sum()))
    return accs


best_val_acc = test_acc = 0
times = []
for epoch in range(1, args.steps + 1):
    start = time.time()
    loss = train()
    train_acc, val_acc, tmp_test_acc = test()
    if val_acc > best_val_acc:
        best_val_acc, test_acc = val_acc, tmp_test_acc
        torch.save(model.state_dict(), os.path.join(args.out, "best.pt"))
    print(f"step {epoch} loss {loss!r} train {train_acc:.4f} val {val_acc:.4f} test {test_acc:.4f}",
          flush=True)
    times.append(time.time() - start)
print(f"Median time per epoch: {torch.tensor(times).median():.4f}s")
