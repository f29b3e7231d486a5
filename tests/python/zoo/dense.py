"""Nets whose answer is as large as the image, boxes in it, films and sequences."""
import torch
from torch import nn
from torch.nn import functional as F

from zoo.classifiers import normed, resnet
from zoo.training import Training, images, labels


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128), classes=5):
        super().__init__()
        self.down = nn.ModuleList(self.twice(a, b) for a, b in zip((3, *widths), widths))
        self.middle = self.twice(widths[-1], 2 * widths[-1])
        self.back = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths))
        self.up = nn.ModuleList(self.twice(2 * width, width) for width in reversed(widths))
        self.head = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def twice(before, width):
        return nn.Sequential(normed(before, width, 3), normed(width, width, 3))

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for back, block in zip(self.back, self.up):
            x = block(torch.cat((back(x), kept.pop()), 1))
        return self.head(x)


def dice(net, x, target):
    scores = net(x)
    share = scores.softmax(1)
    hot = F.one_hot(target, share.size(1)).permute(0, 3, 1, 2).to(share.dtype)
    overlap = (share * hot).sum((0, 2, 3))
    whole = (share + hot).sum((0, 2, 3))
    return F.cross_entropy(scores, target) + (1 - (2 * overlap + 1) / (whole + 1)).mean()


class AtrousPyramid(nn.Module):
    """DeepLab's: the same place seen at several distances, and the mean of the image."""

    def __init__(self, before, width, rates=(6, 12, 18)):
        super().__init__()
        self.branches = nn.ModuleList([normed(before, width, 1)] + [
            normed(before, width, 3, dilation=rate, padding=rate) for rate in rates])
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), normed(before, width, 1))
        self.project = nn.Sequential(normed(width * 5, width, 1), nn.Dropout(0.5))

    def forward(self, x):
        whole = F.interpolate(self.whole(x), x.shape[-2:], mode="bilinear", align_corners=False)
        return self.project(torch.cat([*(branch(x) for branch in self.branches), whole], 1))


class DeepLab(nn.Module):
    def __init__(self, classes=21):
        super().__init__()
        self.body = resnet()[:-3]
        self.head = nn.Sequential(AtrousPyramid(256, 64), normed(64, 64, 3), nn.Conv2d(64, classes, 1))
        self.beside = nn.Sequential(normed(256, 32, 3), nn.Dropout(0.1), nn.Conv2d(32, classes, 1))

    def forward(self, x):
        features = self.body(x)
        return [F.interpolate(head(features), x.shape[-2:], mode="bilinear", align_corners=False)
                for head in (self.head, self.beside)]


def segmented(net, x, target):
    main, beside = net(x)
    return F.cross_entropy(main, target, ignore_index=255) + 0.5 * F.cross_entropy(
        beside, target, ignore_index=255)


class Pyramid(nn.Module):
    """Features of several sizes, each with what the coarser ones know."""

    def __init__(self, befores, width):
        super().__init__()
        self.inner = nn.ModuleList(nn.Conv2d(before, width, 1) for before in befores)
        self.outer = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in befores)

    def forward(self, features):
        last = self.inner[-1](features[-1])
        out = [self.outer[-1](last)]
        for inner, outer, x in list(zip(self.inner, self.outer, features))[-2::-1]:
            last = inner(x) + F.interpolate(last, x.shape[-2:], mode="nearest")
            out.insert(0, outer(last))
        return out


class Detector(nn.Module):
    """RetinaNet's head: for each anchor of each place scores and how its box is to be changed."""

    def __init__(self, width=64, anchors=9, classes=20):
        super().__init__()
        body = resnet()
        self.stages = nn.ModuleList([body[:4], body[4:6], body[6:7]])
        self.pyramid = Pyramid((64, 128, 256), width)
        self.scores, self.boxes = self.tower(width, anchors * classes), self.tower(width, anchors * 4)
        self.classes = classes

    @staticmethod
    def tower(width, outputs):
        return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU(),
                             nn.Conv2d(width, outputs, 3, padding=1))

    def answers(self, head, features, each):
        parts = []
        for x in features:
            rows, _, height, width = x.shape
            x = head(x).view(rows, -1, each, height, width).permute(0, 3, 4, 1, 2)
            parts.append(x.reshape(rows, -1, each))
        return torch.cat(parts, 1)

    def anchors(self, features, side):
        """Boxes of three sizes and three shapes round each place."""
        parts = []
        for x in features:
            step = side / x.size(-1)
            sizes = 4 * step * torch.tensor([1, 2 ** (1 / 3), 2 ** (2 / 3)], device=x.device)
            ratios = torch.tensor([0.5, 1.0, 2.0], device=x.device).sqrt()
            wide = (sizes[:, None] / ratios).view(-1)
            high = (sizes[:, None] * ratios).view(-1)
            shapes = torch.stack((-wide, -high, wide, high), 1) / 2
            places = torch.arange(x.size(-1), device=x.device) * step
            y, x = torch.meshgrid(places, places, indexing="ij")
            centres = torch.stack((x, y, x, y), -1).view(-1, 1, 4)
            parts.append((centres + shapes).view(-1, 4))
        return torch.cat(parts)

    def forward(self, x):
        features, side = [], x.size(-1)
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        features = self.pyramid(features)
        return (self.answers(self.scores, features, self.classes),
                decoded(self.answers(self.boxes, features, 4), self.anchors(features, side)))


def decoded(change, anchors):
    size = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + 0.5 * size
    centre = change[..., :2] * size + centre
    size = change[..., 2:].clamp(max=4.1).exp() * size
    return torch.cat((centre - 0.5 * size, centre + 0.5 * size), -1)


def focal(scores, hot, alpha=0.25, gamma=2):
    share = scores.sigmoid()
    loss = F.binary_cross_entropy_with_logits(scores, hot, reduction="none")
    right = share * hot + (1 - share) * (1 - hot)
    return ((alpha * hot + (1 - alpha) * (1 - hot)) * loss * (1 - right) ** gamma).sum()


def apart(boxes, others):
    """1 - generalised intersection over union, box by box."""
    area, other = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (boxes, others))
    inner = (torch.min(boxes[:, 2:], others[:, 2:]) - torch.max(boxes[:, :2], others[:, :2])).clamp(min=0)
    outer = torch.max(boxes[:, 2:], others[:, 2:]) - torch.min(boxes[:, :2], others[:, :2])
    inner, outer = inner.prod(1), outer.prod(1)
    union = area + other - inner
    return (1 - inner / union + (outer - union) / outer).sum()


def detected(net, x, kinds, boxes, which):
    """Which anchor is to find which box has been decided before."""
    scores, found = net(x)
    rows = torch.arange(len(x), device=x.device)[:, None].expand_as(which)
    hot = torch.zeros_like(scores)
    hot[rows, which, kinds] = 1.0
    found = found[rows, which].flatten(0, 1)
    return (focal(scores, hot) + apart(found, boxes.flatten(0, 1))) / which.numel()


def detector(rows=2, side=256, boxes=10):
    corners = torch.rand(rows, boxes, 2) * side / 2
    return Training(Detector(), images(rows, side), labels(rows, boxes, below=20),
                    torch.cat((corners, corners + side / 4), -1), labels(rows, boxes, below=1000),
                    loss=detected)


class FilmBlock(nn.Module):
    """A 3d convolution in two: of the image, then of time."""

    def __init__(self, before, width, stride):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(before, width, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False),
            nn.BatchNorm3d(width), nn.ReLU(inplace=True),
            nn.Conv3d(width, width, (3, 1, 1), (stride, 1, 1), (1, 0, 0), bias=False), nn.BatchNorm3d(width))
        self.shortcut = nn.Conv3d(before, width, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.layers(x) + self.shortcut(x), inplace=True)


def film():
    net = nn.Sequential(
        nn.Conv3d(3, 16, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(16),
        nn.ReLU(inplace=True), nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1)),
        FilmBlock(16, 32, 1), FilmBlock(32, 64, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, 100))
    return Training(net, torch.randn(2, 3, 16, 112, 112), labels(2, below=100))


class Tagger(nn.Module):
    """A label for each word, by a recurrent net that reads both ways."""

    def __init__(self, kind, words=5000, width=128, classes=20):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.cells = kind(width, width, 2, batch_first=True, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, ids):
        return self.head(self.cells(self.words(ids))[0]).transpose(1, 2)


class Encoder(nn.Module):
    def __init__(self, before_norm, words=5000, width=128, classes=20):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, F.gelu, batch_first=True,
                                           norm_first=before_norm)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1), device=ids.device)
        return self.head(self.layers(self.words(ids), mask)).transpose(1, 2)


class Translator(nn.Module):
    def __init__(self, words=5000, width=128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.Transformer(width, 4, 1, 1, 4 * width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1), device=ids.device)
        x = self.words(ids)
        return self.head(self.layers(x, x, tgt_mask=mask, tgt_is_causal=True)).transpose(1, 2)


class Pooled(nn.Module):
    """One question asks all words (nn.MultiheadAttention with its weights)."""

    def __init__(self, words=5000, width=128, classes=20):
        super().__init__()
        self.words, self.question = nn.Embedding(words, width), nn.Parameter(torch.randn(1, 1, width))
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, ids):
        x = self.words(ids)
        x, weights = self.attention(self.question.expand(len(x), -1, -1), x, x)
        return self.head(x.squeeze(1)) + weights.square().sum()


class Attending(nn.Module):
    """Attention to itself that keeps no weights: one tensor is query, key and value."""

    def __init__(self, width=256):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def mean_of(net, x):
    return net(x).mean()


def on_words(net, classes=20, length=64):
    return Training(net, labels(16, length, below=5000), labels(16, length, below=classes))


CASES = {
    "unet": lambda: Training(UNet(), images(2, 128), labels(2, 128, 128, below=5), loss=dice),
    "deeplab": lambda: Training(DeepLab(), images(2, 192), labels(2, 192, 192, below=21), loss=segmented),
    "detector": detector,
    "film": film,
    "lstm": lambda: on_words(Tagger(nn.LSTM)),
    "gru": lambda: on_words(Tagger(nn.GRU), length=8),
    "gru_longer": lambda: on_words(Tagger(nn.GRU), length=32),
    "encoder_norm_first": lambda: on_words(Encoder(True)),
    "encoder_norm_last": lambda: on_words(Encoder(False)),
    "translator": lambda: on_words(Translator(), 5000, 32),
    "attending": lambda: Training(Attending(), torch.randn(8, 256, 256), loss=mean_of),
    "upsampled": lambda: Training(
        nn.Sequential(nn.Conv2d(32, 32, 1), nn.ConvTranspose2d(32, 3, 4, 2, 1)), images(16, 64, 32),
        loss=mean_of),
    "pooled": lambda: Training(Pooled(), labels(16, 64, below=5000), labels(16, below=20)),
}
