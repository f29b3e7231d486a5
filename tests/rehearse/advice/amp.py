import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(8)], nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
scaler = torch.amp.GradScaler("cuda")
data = TensorDataset(torch.randn(8192, 512), torch.randint(10, (8192,)))
for _ in range(9):
    for x, labels in DataLoader(data, batch_size=1024, shuffle=True):
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(net(x.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
