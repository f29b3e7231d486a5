"""The nets of tests/nets, statement for statement: what lives how long decides a peak, so temporaries
have names on both sides and are bound again in the same order."""
import torch
from torch import nn
from torch.nn import functional as F

from token_nets import Block, EncoderDecoder, Gpt, Llama, Moe, Rnn, Text, floats, ints


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        widths = [c["input"]] + [c["width"]] * (c["layers"] - 1) + [c["classes"]]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))
        self.inputs = [floats(c["batch"], c["input"]), ints(c["batch"], below=c["classes"])]

    def loss(self, x, target):
        for layer in self.layers[:-1]:
            h = layer(x)
            x = torch.relu(h)
            del h
        x = self.layers[-1](x)
        return F.cross_entropy(x, target)


class ResidualBlock(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.shortcut = before != width or stride != 1
        if self.shortcut:
            self.conv3 = nn.Conv2d(before, width, 1, stride, bias=False)
            self.norm3 = nn.BatchNorm2d(width)

    def forward(self, x):
        h = self.conv1(x)
        h = self.norm1(h)
        h = torch.relu(h)
        h = self.conv2(h)
        h = self.norm2(h)
        if self.shortcut:
            x = self.conv3(x)
            x = self.norm3(x)
        h = h + x
        return torch.relu(h)


class ResNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["width"]
        self.conv = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList()
        before = width
        for stage in range(c["stages"]):
            for block in range(c["blocks"]):
                self.blocks.append(ResidualBlock(before, width, 2 if stage and not block else 1))
                before = width
            width *= 2
        self.head = nn.Linear(before, c["classes"])
        self.inputs = [floats(c["batch"], 3, c["image"], c["image"]),
                       ints(c["batch"], below=c["classes"])]

    def loss(self, x, target):
        x = self.conv(x)
        x = self.norm(x)
        x = torch.relu(x)
        x = F.max_pool2d(x, 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        x = F.adaptive_avg_pool2d(x, (1, 1))
        x = x.flatten(1)
        x = self.head(x)
        return F.cross_entropy(x, target)


class Vit(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, patch = c["width"], c["patch"]
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.zeros(1, (c["image"] // patch) ** 2 + 1, width))
        self.blocks = nn.ModuleList(Block(width, c["heads"], False, 0) for _ in range(c["layers"]))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, c["classes"])
        self.inputs = [floats(c["batch"], 3, c["image"], c["image"]),
                       ints(c["batch"], below=c["classes"])]

    def loss(self, x, target):
        x = self.patches(x)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat((self.first.expand(x.size(0), -1, -1), x), 1)
        x = x + self.place
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        x = x[:, 0]
        x = self.head(x)
        return F.cross_entropy(x, target)


class Autoencoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, groups = c["width"], c["groups"]
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1)
        self.norm1 = nn.GroupNorm(groups, width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.norm2 = nn.GroupNorm(groups, 2 * width)
        self.back = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.conv3 = nn.Conv2d(width, 3, 3, 1, 1)
        self.inputs = [floats(c["batch"], 3, c["image"], c["image"])] * 2

    def loss(self, x, target):
        x = self.conv1(x)
        x = self.norm1(x)
        kept = F.silu(x)
        x = self.conv2(kept)
        x = self.norm2(x)
        x = F.silu(x)
        x = self.back(x)
        x = x + kept
        del kept
        x = F.interpolate(x, scale_factor=0.5, mode="nearest")
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        x = self.conv3(x)
        return F.mse_loss(x, target)


NETS = {"mlp": Mlp, "gpt": Gpt, "llama": Llama, "encoder_decoder": EncoderDecoder, "rnn": Rnn,
        "resnet": ResNet, "vit": Vit, "moe": Moe, "text": Text, "autoencoder": Autoencoder}
