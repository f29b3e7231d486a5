"""Transformers over images: a plain one, and one with shifted windows."""
import torch
from torch import nn
from torch.nn import functional as F


class DropPath(nn.Module):
    """Whole examples skip a branch."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if not self.training or self.rate == 0:
            return x
        kept = x.new_empty((x.size(0),) + (1,) * (x.dim() - 1)).bernoulli_(1 - self.rate)
        return x * kept.div_(1 - self.rate)


class LayerScale(nn.Module):
    def __init__(self, width, shape=()):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width, *shape), 1e-5))

    def forward(self, x):
        return x * self.gamma


def mlp(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, width))


class Attention(nn.Module):
    def __init__(self, width, heads, fused=True):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).reshape(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)
            x = self.dropout(scores.softmax(-1)) @ v
        return self.out(x.transpose(1, 2).reshape(rows, length, width))


class VitBlock(nn.Module):
    def __init__(self, width, fused):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attention, self.mlp = Attention(width, width // 64, fused), mlp(width, 4 * width)
        self.scale1, self.scale2 = LayerScale(width), LayerScale(width)
        self.drop1, self.drop2 = DropPath(0.1), DropPath(0.1)

    def forward(self, x):
        x = x + self.drop1(self.scale1(self.attention(self.norm1(x))))
        return x + self.drop2(self.scale2(self.mlp(self.norm2(x))))


class Vit(nn.Module):
    """Positions were learned on a grid of 14 x 14, and are resampled for other images."""

    def __init__(self, width=192, depth=2, fused=True, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 1 + 14 * 14, width) * 0.02)
        self.blocks = nn.Sequential(*(VitBlock(width, fused) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def places_on(self, height, width):
        if height == width == 14:
            return self.places
        first, grid = self.places[:, :1], self.places[:, 1:]
        grid = grid.reshape(1, 14, 14, -1).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, (height, width), mode="bicubic", antialias=True)
        return torch.cat((first, grid.permute(0, 2, 3, 1).reshape(1, height * width, -1)), 1)

    def forward(self, x):
        x = self.patches(x)
        places = self.places_on(*x.shape[-2:])
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.size(0), -1, -1), x), 1) + places
        return self.head(self.norm(self.blocks(x))[:, 0])


def windows_of(x, size):
    rows, height, width, channels = x.shape
    x = x.view(rows, height // size, size, width // size, size, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, channels)


def from_windows(x, size, height, width):
    x = x.view(-1, height // size, width // size, size, size, x.size(-1))
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, x.size(-1))


def places_in_window(size):
    """For each two places of a window, the number of their relative position."""
    axis = torch.arange(size)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
    apart = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + size - 1
    return apart[..., 0] * (2 * size - 1) + apart[..., 1]


def mask_of_shifted(side, size, shift):
    """After a roll a window has places that were never neighbours."""
    region = torch.zeros(1, side, side, 1)
    cuts = slice(0, -size), slice(-size, -shift), slice(-shift, None)
    for number, (rows, columns) in enumerate((a, b) for a in cuts for b in cuts):
        region[:, rows, columns] = number
    region = windows_of(region, size).squeeze(-1)
    apart = region.unsqueeze(1) - region.unsqueeze(2)
    return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)


class SwinBlock(nn.Module):
    def __init__(self, width, heads, side, shift, size=7):
        super().__init__()
        self.heads, self.shift, self.size = heads, shift, size
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn((2 * size - 1) ** 2, heads) * 0.02)
        self.register_buffer("index", places_in_window(size))
        self.register_buffer("mask", mask_of_shifted(side, size, shift) if shift else None)
        self.mlp, self.drop = mlp(width, 4 * width), DropPath(0.1)

    def attend(self, x):
        many, length, width = x.shape
        q, k, v = self.qkv(x).reshape(many, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * q.size(-1) ** -0.5) @ k.transpose(-2, -1)
        bias = self.bias[self.index.view(-1)].view(length, length, -1).permute(2, 0, 1).contiguous()
        scores = scores + bias.unsqueeze(0)
        if self.mask is not None:
            scores = scores.view(-1, len(self.mask), self.heads, length, length)
            scores = (scores + self.mask[None, :, None]).view(-1, self.heads, length, length)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(many, length, width))

    def forward(self, x):
        height, width = x.shape[1:3]
        h = self.norm1(x)
        if self.shift:
            h = torch.roll(h, (-self.shift, -self.shift), (1, 2))
        h = from_windows(self.attend(windows_of(h, self.size)), self.size, height, width)
        if self.shift:
            h = torch.roll(h, (self.shift, self.shift), (1, 2))
        x = x + self.drop(h)
        return x + self.drop(self.mlp(self.norm2(x)))


class PatchMerging(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):
        parts = x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]
        return self.reduce(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self, width=48, side=28, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(
            SwinBlock(width, 3, side, 0), SwinBlock(width, 3, side, 3), PatchMerging(width),
            SwinBlock(2 * width, 6, side // 2, 0), SwinBlock(2 * width, 6, side // 2, 3))
        self.norm, self.head = nn.LayerNorm(2 * width), nn.Linear(2 * width, classes)

    def forward(self, x):
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean((1, 2)))
