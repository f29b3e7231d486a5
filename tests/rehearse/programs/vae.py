"""Follows the variational autoencoder of pytorch/examples: a fully connected VAE on 28 x 28 images with noise
drawn on the device, an accelerator chosen at the start, and images sampled and saved at the end of each
epoch."""

import argparse
import os

import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import save_image

parser = argparse.ArgumentParser(description="VAE example")
parser.add_argument("--batch-size", type=int, default=32, metavar="N")
parser.add_argument("--steps", type=int, default=10, metavar="N", help="optimizer steps in all")
parser.add_argument("--no-accel", action="store_true", help="stay on the CPU")
parser.add_argument("--seed", type=int, default=1, metavar="S")
parser.add_argument("--out", default="out")
args = parser.parse_args()

use_accel = not args.no_accel and torch.accelerator.is_available()
torch.manual_seed(args.seed)
device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
print(f"Using device: {device}")
results = os.path.join(args.out, "results")
os.makedirs(results, exist_ok=True)

kwargs = {"num_workers": 1, "pin_memory": True} if use_accel else {}
pictures = torch.rand(192, 1, 28, 28, generator=torch.Generator().manual_seed(0)).round()
labels = torch.zeros(192, dtype=torch.long)
train_loader = DataLoader(TensorDataset(pictures[:160], labels[:160]), batch_size=args.batch_size,
                          shuffle=True,
                          **kwargs)
test_loader = DataLoader(TensorDataset(pictures[160:], labels[160:]), batch_size=args.batch_size, **kwargs)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 400)
        self.fc21 = nn.Linear(400, 20)
        self.fc22 = nn.Linear(400, 20)
        self.fc3 = nn.Linear(20, 400)
        self.fc4 = nn.Linear(400, 784)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 784), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)
step = 0


def train(epoch):
    global step
    model.train()
    train_loss = 0
    for data, _ in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        step += 1
        print(f"step {step} loss {loss.item()!r}", flush=True)
        if step == args.steps:
            break
    print(f"====> Epoch: {epoch} Average loss: {train_loss / len(train_loader.dataset):.4f}")


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, _) in enumerate(test_loader):
            data = data.to(device)
            recon_batch, mu, logvar = model(data)
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
            if i == 0:
                n = min(data.size(0), 8)
                comparison = torch.cat([data[:n], recon_batch.view(-1, 1, 28, 28)[:n]])
                save_image(comparison.cpu(), os.path.join(results, f"reconstruction_{epoch}.png"), nrow=n)
    print(f"====> Test set loss: {test_loss / len(test_loader.dataset):.4f}")


if __name__ == "__main__":
    epoch = 0
    while step < args.steps:
        epoch += 1
        train(epoch)
        test(epoch)
        with torch.no_grad():
            sample = torch.randn(64, 20).to(device)
            sample = model.decode(sample).cpu()
            save_image(sample.view(64, 1, 28, 28), os.path.join(results, f"sample_{epoch}.png"))
