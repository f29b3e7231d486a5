import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def stage(before, after):
    return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]


net = nn.Sequential(*stage(3, 32), *stage(32, 64), *stage(64, 128), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                    nn.Linear(128, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
data = TensorDataset(torch.randn(256, 3, 64, 64), torch.randint(10, (256,)))
train = DataLoader(data, batch_size=32, shuffle=True)
test = DataLoader(data, batch_size=64)
for epoch in range(9):
    net.train()
    for images, labels in train:
        loss = nn.functional.cross_entropy(net(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
