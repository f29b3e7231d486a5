import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(6)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
data = TensorDataset(torch.randn(8 * 2048, 256))
for _ in range(9):
    for x, in DataLoader(data, batch_size=2048, shuffle=True):
        loss = net(x.cuda()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
