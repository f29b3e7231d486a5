import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from torch.utils.data import DataLoader, TensorDataset

maker = nn.Sequential(nn.Linear(64, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 3072)).cuda()
judge = nn.Sequential(nn.Linear(3072, 1024), nn.LeakyReLU(0.2), nn.Linear(1024, 1)).cuda()
of_maker = torch.optim.Adam(maker.parameters(), betas=(0.5, 0.999))
of_judge = torch.optim.Adam(judge.parameters(), betas=(0.5, 0.999))
data = TensorDataset(torch.randn(4096, 3072))
for _ in range(9):
    for real, in DataLoader(data, batch_size=512, shuffle=True):
        real = real.cuda()
        noise = torch.randn(len(real), 64, device="cuda")
        judge.zero_grad()
        real_logits = judge(real)
        real_loss = loss_of(real_logits, torch.ones_like(real_logits))
        real_loss.backward()
        made = maker(noise)
        made_logits = judge(made.detach())
        made_loss = loss_of(made_logits, torch.zeros_like(made_logits))
        made_loss.backward()
        of_judge.step()
        maker.zero_grad()
        logits = judge(made)
        loss = loss_of(logits, torch.ones_like(logits))
        loss.backward()
        of_maker.step()
