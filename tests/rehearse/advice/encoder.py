import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(2000, 256)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(256, 10)

    def forward(self, ids):
        return self.head(self.encoder(self.words(ids)).mean(1))


net = Classifier().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
data = TensorDataset(torch.randint(2000, (512, 128)), torch.randint(10, (512,)))
for epoch in range(9):
    for ids, labels in DataLoader(data, batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(ids.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
