"""Follows the DCGAN of pytorch/examples: a generator and a discriminator with one Adam each, three backward
passes in every step, noise drawn on the device, sample images and both networks saved as it goes."""

import argparse
import os
import random

import torch
import torch.nn as nn
import torch.optim as optim
import torch.utils.data
import torchvision.utils as vutils
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--batchSize", type=int, default=8)
parser.add_argument("--nz", type=int, default=32, help="size of the latent vector")
parser.add_argument("--ngf", type=int, default=8)
parser.add_argument("--ndf", type=int, default=8)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.0002)
parser.add_argument("--beta1", type=float, default=0.5)
parser.add_argument("--no-accel", action="store_true")
parser.add_argument("--netG", default="", help="path of a generator to continue")
parser.add_argument("--netD", default="", help="path of a discriminator to continue")
parser.add_argument("--out", default="out")
parser.add_argument("--seed", type=int, default=999)
opt = parser.parse_args()
print(opt)
os.makedirs(opt.out, exist_ok=True)

random.seed(opt.seed)
torch.manual_seed(opt.seed)
torch.backends.cudnn.benchmark = True
use_accel = not opt.no_accel and torch.accelerator.is_available()
device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
nc, nz, ngf, ndf = 3, opt.nz, opt.ngf, opt.ndf

pictures = torch.rand(64, nc, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
dataloader = DataLoader(TensorDataset(pictures, torch.zeros(64)), batch_size=opt.batchSize, shuffle=True,
                        num_workers=opt.workers)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        torch.nn.init.normal_(m.weight, 1.0, 0.02)
        torch.nn.init.zeros_(m.bias)


def up(inputs, outputs, stride=2, padding=1):
    return [nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False), nn.BatchNorm2d(outputs),
            nn.ReLU(True)]


def down(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.2, inplace=True)]


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(*up(nz, ngf * 8, 1, 0), *up(ngf * 8, ngf * 4), *up(ngf * 4, ngf * 2),
                                  *up(ngf * 2, ngf), nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
                                  nn.Tanh())

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(nc, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
                                  *down(ndf, ndf * 2), *down(ndf * 2, ndf * 4), *down(ndf * 4, ndf * 8),
                                  nn.Conv2d(ndf * 8, 1, 4, 1, 0, bias=False), nn.Sigmoid())

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


netG = Generator().to(device)
netG.apply(weights_init)
if opt.netG != "":
    netG.load_state_dict(torch.load(opt.netG))
netD = Discriminator().to(device)
netD.apply(weights_init)
if opt.netD != "":
    netD.load_state_dict(torch.load(opt.netD))

criterion = nn.BCELoss()
fixed_noise = torch.randn(opt.batchSize, nz, 1, 1, device=device)
real_label, fake_label = 1, 0
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

step = epoch = 0
while step < opt.steps:
    for i, data in enumerate(dataloader, 0):
        # The discriminator: once on real images, once on generated ones.
        netD.zero_grad()
        real = data[0].to(device)
        label = torch.full((real.size(0),), real_label, dtype=real.dtype, device=device)
        output = netD(real)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()
        noise = torch.randn(real.size(0), nz, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)
        errD_fake.backward()
        errD = errD_real + errD_fake
        optimizerD.step()

        # The generator.
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake)
        errG = criterion(output, label)
        errG.backward()
        optimizerG.step()
        step += 1
        print(f"step {step} loss {errD.item()!r} generator {errG.item()!r} D(x) {D_x:.4f}", flush=True)
        if step % 5 == 0:
            vutils.save_image(real.cpu(), f"{opt.out}/real_samples.png", normalize=True)
            fake = netG(fixed_noise)
            vutils.save_image(fake.detach().cpu(), f"{opt.out}/fake_samples_epoch_{epoch:03d}.png",
                              normalize=True)
        if step == opt.steps:
            break
    torch.save(netG.state_dict(), f"{opt.out}/netG_epoch_{epoch}.pth")
    torch.save(netD.state_dict(), f"{opt.out}/netD_epoch_{epoch}.pth")
    epoch += 1
