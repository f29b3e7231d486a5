import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(64, 256, 2, batch_first=True), nn.Linear(256, 10)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
data = TensorDataset(torch.randn(512, 50, 64), torch.randint(10, (512,)))
for _ in range(9):
    for x, labels in DataLoader(data, batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(net(x.cuda()), labels.cuda())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
