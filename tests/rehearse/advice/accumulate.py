import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
data = TensorDataset(torch.randn(4096, 512), torch.randn(4096, 512))
parts = 4
for _ in range(9):
    for number, (x, y) in enumerate(DataLoader(data, batch_size=512, shuffle=True), 1):
        loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())
        loss = loss / parts
        loss.backward()
        if number % parts == 0:
            optimizer.step()
            optimizer.zero_grad()
