import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Squared(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(context, x):
        context.save_for_backward(x)
        return x.relu().square()

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(context, gradient):
        x, = context.saved_tensors
        return 2 * x.relu() * gradient


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.narrow(Squared.apply(self.wide(self.norm(x))))


blocks = nn.ModuleList([Block() for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(blocks.parameters())
data = TensorDataset(torch.randn(8192, 256))
for _ in range(9):
    for x, in DataLoader(data, batch_size=1024, shuffle=True):
        x = x.cuda()
        for block in blocks:
            x = block(x)
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
