"""Ways to train one small net: optimizers in each form, checkpoints, precisions, torch.func."""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from zoo.classifiers import on_images, resnet
from zoo.training import Training, classified, labels, plain_step

WIDTH, CLASSES = 256, 10


def block(dropout=0.1):
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Dropout(dropout),
                         nn.Linear(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH))


def deep(dropout=0.1):
    return nn.Sequential(*(block(dropout) for _ in range(4)), nn.Linear(WIDTH, CLASSES))


def on_rows(net, rows=512, **how):
    return Training(net, torch.randn(rows, WIDTH), labels(rows, below=CLASSES), **how)


# ---- Optimizers

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {}), "sgd_momentum": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (torch.optim.Adam, {"amsgrad": True}), "adamw": (torch.optim.AdamW, {}),
    "adagrad": (torch.optim.Adagrad, {}), "adamax": (torch.optim.Adamax, {}),
    "nadam": (torch.optim.NAdam, {}), "radam": (torch.optim.RAdam, {}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
    "rprop": (torch.optim.Rprop, {}), "adadelta": (torch.optim.Adadelta, {}),
    "asgd": (torch.optim.ASGD, {}), "adafactor": (torch.optim.Adafactor, {}),
}
FORMS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
HAVE_FUSED = {"sgd", "sgd_momentum", "adam", "adamw", "adagrad"}


def optimized(kind, form):
    make, settings = OPTIMIZERS[kind]
    return on_rows(deep(), optimizer=lambda parameters: make(parameters, lr=1e-3, **settings, **FORMS[form]))


def muon():
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)))
    return on_rows(net, optimizer=lambda parameters: torch.optim.Muon(parameters, lr=1e-3))


def lbfgs(parameters):
    """Gradients without values read as zero: it would stop at once."""
    return torch.optim.LBFGS(parameters, max_iter=3, tolerance_grad=-1, tolerance_change=-1)


# ---- Checkpoints

class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.reentrant = nn.Linear(WIDTH, WIDTH), reentrant
        self.blocks, self.head = nn.ModuleList(block() for _ in range(4)), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.first(x)
        for one in self.blocks:
            x = checkpoint(one, x, use_reentrant=self.reentrant)
        return self.head(x)


class InSegments(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.layers, self.reentrant = nn.Linear(WIDTH, WIDTH), deep(), reentrant

    def forward(self, x):
        return checkpoint_sequential(self.layers, 2, self.first(x), use_reentrant=self.reentrant)


# ---- Steps

def accumulating(training):
    for _ in range(3):
        (training.loss() / 3).backward()
    training.optimizer.step()
    training.optimizer.zero_grad()


def autocast(dtype):
    def step(training):
        with torch.autocast(training.batch[0].device.type, dtype):
            loss = training.loss()
        loss.backward()
        training.optimizer.step()
        training.optimizer.zero_grad()
    return step


def scaled(training):
    """A GradScaler's step; whether gradients are finite it asks them."""
    kind = training.batch[0].device.type
    scaler = torch.amp.GradScaler(kind)
    with torch.autocast(kind, torch.float16):
        loss = training.loss()
    scaler.scale(loss).backward()
    scaler.unscale_(training.optimizer)
    torch.nn.utils.clip_grad_norm_(training.net.parameters(), 1.0)
    scaler.step(training.optimizer)
    scaler.update()
    training.optimizer.zero_grad()


def closed(training):
    def closure():
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        return loss
    training.optimizer.step(closure)


# ---- torch.func, hooks, parametrizations

def by_functional_call(net, x, target):
    weights = {name: one * 1.0 for name, one in net.named_parameters()}
    return F.cross_entropy(functional_call(net, weights, (x,)), target)


def per_example_step(training):
    """Gradients of each example, clipped one by one, as for differential privacy."""
    net, (x, target) = training.net, training.batch
    weights = {name: one.detach() for name, one in net.named_parameters()}

    def loss(weights, x, target):
        return F.cross_entropy(functional_call(net, weights, (x[None],)), target[None])

    training.before_forward()
    each = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, target)
    norm = sum(one.flatten(1).square().sum(1) for one in each.values()).sqrt()
    share = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    for name, one in net.named_parameters():
        one.grad = torch.einsum("b,b...->...", share, each[name]) / len(x)
    training.optimizer.step()
    training.optimizer.zero_grad()


class Ensemble(nn.Module):
    """Weights of several nets in one tensor, which vmap runs side by side."""

    def __init__(self, many=4):
        super().__init__()
        self.up = nn.Parameter(torch.randn(many, 2 * WIDTH, WIDTH) * 0.02)
        self.down = nn.Parameter(torch.randn(many, CLASSES, 2 * WIDTH) * 0.02)

    def forward(self, x):
        return vmap(lambda up, down: F.linear(F.relu(F.linear(x, up)), down))(self.up, self.down).mean(0)


def hooked():
    """The outputs of layers are kept for a second loss, as distillation does."""
    net, kept = deep(), []
    for layer in net[:-1]:
        layer.register_forward_hook(lambda module, inputs, output: kept.append(output))

    def loss(net, x, target):
        kept.clear()
        scores = net(x)
        return F.cross_entropy(scores, target) + sum(one.square().mean() for one in kept) * 1e-3

    return on_rows(net, loss=loss)


def parametrized(by):
    net = deep()
    for layer in net.modules():
        if isinstance(layer, nn.Linear):
            by(layer)
    return on_rows(net)


def penalized(net, x, target):
    """With a penalty on the gradient of the input: backward through backward."""
    x = x.detach().requires_grad_()
    loss = F.cross_entropy(net(x), target)
    slope, = torch.autograd.grad(loss, x, create_graph=True)
    return loss + slope.square().sum()


CASES = {
    **{f"{kind}_{form}": lambda kind=kind, form=form: optimized(kind, form)
       for kind in OPTIMIZERS for form in FORMS if form != "fused" or kind in HAVE_FUSED},
    "muon": muon,
    "lbfgs": lambda: on_rows(deep(), optimizer=lbfgs, step=closed),
    "checkpoint_reentrant": lambda: on_rows(Checkpointed(True)),
    "checkpoint_nonreentrant": lambda: on_rows(Checkpointed(False)),
    "checkpoint_sequential_reentrant": lambda: on_rows(InSegments(True)),
    "checkpoint_sequential_nonreentrant": lambda: on_rows(InSegments(False)),
    "accumulating": lambda: on_rows(deep(), step=accumulating),
    "autocast_bf16": lambda: on_rows(deep(), step=autocast(torch.bfloat16)),
    "autocast_checkpointed": lambda: on_rows(Checkpointed(False), step=autocast(torch.bfloat16)),
    "autocast_resnet": lambda: on_images(resnet(), 112, step=autocast(torch.bfloat16)),
    "scaled_fp16": lambda: on_rows(deep(), step=scaled),
    "functional_call": lambda: on_rows(deep(), loss=by_functional_call),
    "per_example": lambda: on_rows(deep(dropout=0), rows=16, step=per_example_step),
    "ensemble": lambda: on_rows(Ensemble()),
    "hooked": hooked,
    "weight_norm": lambda: parametrized(parametrizations.weight_norm),
    "spectral_norm": lambda: parametrized(parametrizations.spectral_norm),
    "gradient_penalty": lambda: on_rows(deep(dropout=0), loss=penalized),
}
