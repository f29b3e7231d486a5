"""Nets that classify images, in timm's and torchvision's manner, and how they are trained."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from zoo.image_transformers import DropPath, LayerScale, Swin, Vit, mlp
from zoo.training import Training, images, labels, plain_step


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.mlp = nn.LayerNorm(width), mlp(width, 4 * width)
        self.scale, self.drop = LayerScale(width, (1, 1)), DropPath(0.1)

    def forward(self, x):
        h = self.depthwise(x).permute(0, 2, 3, 1)
        h = self.mlp(self.norm(h)).permute(0, 3, 1, 2)
        return x + self.drop(self.scale(h))


def convnext(widths=(40, 80, 160), classes=100):
    layers = [nn.Conv2d(3, widths[0], 4, 4), LayerNorm2d(widths[0])]
    for before, width in zip((None, *widths), widths):
        if before:
            layers += [LayerNorm2d(before), nn.Conv2d(before, width, 2, 2)]
        layers += [ConvNextBlock(width), ConvNextBlock(width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), LayerNorm2d(widths[-1]), nn.Flatten(1),
                         nn.Linear(widths[-1], classes))


def normed(before, width, kernel, stride=1, groups=1, activation=nn.ReLU, **more):
    layers = [nn.Conv2d(before, width, kernel, stride, more.pop("padding", kernel // 2), groups=groups,
                        bias=False, **more), nn.BatchNorm2d(width)]
    return nn.Sequential(*layers, *([activation(inplace=True)] if activation else []))


class SqueezeExcite(nn.Module):
    def __init__(self, width, hidden, gate=nn.Sigmoid):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(width, hidden, 1), nn.Conv2d(hidden, width, 1)
        self.activation, self.gate = nn.SiLU(inplace=True), gate()

    def forward(self, x):
        h = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.expand(self.activation(self.reduce(h))))


class InvertedResidual(nn.Module):
    """EfficientNet's with squeeze-and-excite, MobileNet's without."""

    def __init__(self, before, width, kernel, stride, excite, activation):
        super().__init__()
        hidden = 4 * before
        middle = [SqueezeExcite(hidden, before // 4)] if excite else []
        self.layers = nn.Sequential(
            normed(before, hidden, 1, activation=activation),
            normed(hidden, hidden, kernel, stride, hidden, activation), *middle,
            normed(hidden, width, 1, activation=None))
        self.drop = DropPath(0.1 if excite else 0)
        self.skips = before == width and stride == 1

    def forward(self, x):
        return x + self.drop(self.layers(x)) if self.skips else self.layers(x)


def inverted(excite, activation, classes=100):
    plan = (16, 24, 3, 2), (24, 24, 3, 1), (24, 40, 5, 2), (40, 40, 5, 1)
    return nn.Sequential(
        normed(3, 16, 3, 2, activation=activation),
        *(InvertedResidual(*one, excite, activation) for one in plan),
        normed(40, 320, 1, activation=activation), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(320, classes))


class MixerBlock(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.channels = mlp(length, width // 2), mlp(width, 4 * width)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, width=256, depth=2, classes=100):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*(MixerBlock(width, 14 * 14) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


class Residual(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.layers = nn.Sequential(normed(before, width, 1), normed(width, width, 3, stride),
                                    normed(width, 4 * width, 1, activation=None))
        changes = stride != 1 or before != 4 * width
        self.shortcut = normed(before, 4 * width, 1, stride, activation=None) if changes else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.layers(x) + self.shortcut(x))


def resnet(classes=100):
    plan = (32, 16, 1), (64, 16, 1), (64, 32, 2), (128, 32, 1), (128, 64, 2)
    return nn.Sequential(normed(3, 32, 7, 2), nn.MaxPool2d(3, 2, 1), *(Residual(*one) for one in plan),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes))


class DenseLayer(nn.Module):
    def __init__(self, before, growth, checkpointed):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(before), nn.Conv2d(before, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.checkpointed = checkpointed

    def bottleneck(self, *features):
        return self.conv1(F.relu(self.norm1(torch.cat(features, 1)), inplace=True))

    def forward(self, features):
        if self.checkpointed and any(one.requires_grad for one in features):
            h = checkpoint(self.bottleneck, *features, use_reentrant=False)
        else:
            h = self.bottleneck(*features)
        return self.conv2(F.relu(self.norm2(h), inplace=True))


class DenseNet(nn.Module):
    def __init__(self, checkpointed, growth=16, classes=100):
        super().__init__()
        self.stem = nn.Sequential(normed(3, 32, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        width = 32
        for _ in range(2):
            self.blocks.append(nn.ModuleList(DenseLayer(width + i * growth, growth, checkpointed)
                                             for i in range(4)))
            width = (width + 4 * growth) // 2
            self.transitions.append(nn.Sequential(nn.BatchNorm2d(2 * width), nn.ReLU(inplace=True),
                                                  nn.Conv2d(2 * width, width, 1), nn.AvgPool2d(2, 2)))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x)
        for block, transition in zip(self.blocks, self.transitions):
            features = [x]
            for layer in block:
                features.append(layer(features))
            x = transition(torch.cat(features, 1))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(F.relu(x), (1, 1)), 1))


# ---- How they are trained

def softly(net, x, target):
    """Images and labels are mixed with those of the batch turned round; labels are smoothed."""
    share = 0.3
    x = x * share + x.flip(0) * (1 - share)
    hot = torch.full((len(target), 100), 0.1 / 100, device=x.device)
    hot = hot.scatter_(1, target.unsqueeze(1), 0.9 + 0.1 / 100)
    hot = hot * share + hot.flip(0) * (1 - share)
    return torch.sum(-hot * F.log_softmax(net(x), -1), -1).mean()


def smoothed(net, x, target):
    return F.cross_entropy(net(x), target, label_smoothing=0.1)


def clipped_step(training):
    training.loss().backward()
    torch.nn.utils.clip_grad_norm_(training.net.parameters(), 1.0)
    training.optimizer.step()
    training.optimizer.zero_grad()


def averaging_step(training):
    """Beside the net its average over time."""
    plain_step(training)
    average, net = training.beside[0].state_dict(), training.net.state_dict()
    for name, kept in average.items():
        if kept.is_floating_point():
            kept.lerp_(net[name], 0.01)
        else:
            kept.copy_(net[name])


def on_images(net, side=224, rows=8, **how):
    return Training(net, images(rows, side), labels(rows, below=100), **how)


def with_average(make):
    net, average = make(), make().requires_grad_(False)
    average.load_state_dict(net.state_dict())
    return on_images(net, beside=[average], step=averaging_step)


def channels_last(net):
    """net.to(memory_format=...) by hand: PyTorch cannot do that to a net of fake tensors."""
    for one in net.parameters():
        if one.dim() == 4:
            one.data = one.data.contiguous(memory_format=torch.channels_last)
    x = images(8, 224).contiguous(memory_format=torch.channels_last)
    return Training(net, x, labels(8, below=100))


CASES = {
    "vit": lambda: on_images(Vit()),
    "vit_larger_images": lambda: on_images(Vit(), 288),
    "vit_scores": lambda: on_images(Vit(fused=False)),
    "vit_mixup_clipped": lambda: on_images(Vit(), loss=softly, step=clipped_step),
    "vit_averaged": lambda: with_average(Vit),
    "convnext": lambda: on_images(convnext()),
    "convnext_channels_last": lambda: channels_last(convnext()),
    "efficientnet": lambda: on_images(inverted(True, nn.SiLU), loss=smoothed),
    "efficientnet_averaged": lambda: with_average(lambda: inverted(True, nn.SiLU)),
    "efficientnet_channels_last": lambda: channels_last(inverted(True, nn.SiLU)),
    "mixer": lambda: on_images(Mixer()),
    "swin": lambda: on_images(Swin(), 112),
    "mobilenet": lambda: on_images(inverted(False, nn.ReLU6)),
    "mobilenet_hardswish": lambda: on_images(inverted(True, nn.Hardswish)),
    "resnet": lambda: on_images(resnet()),
    "resnet_channels_last": lambda: channels_last(resnet()),
    "densenet": lambda: on_images(DenseNet(False)),
    "densenet_checkpointed": lambda: on_images(DenseNet(True)),
}
