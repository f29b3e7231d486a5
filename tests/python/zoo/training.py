"""What a case makes: nets, a batch, an optimizer, and a step as a program would write it. It is made
wherever tensors are made by default: on a card, on the CPU, under FakeTensorMode."""
import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F
from transformers_steps import Answers


def images(rows, side, channels=3):
    return torch.randn(rows, channels, side, side)


def labels(*sizes, below):
    return torch.randint(0, below, sizes)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def classified(net, x, target):
    return F.cross_entropy(net(x), target)


def predicted(model, ids):
    """transformers' models know their own loss."""
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def plain_step(training):
    training.loss().backward()
    training.optimizer.step()
    training.optimizer.zero_grad()


class Training:
    def __init__(self, net, *batch, loss=classified, optimizer=adamw, step=plain_step, beside=()):
        """beside: nets that are not trained, as an average of this one."""
        self.net, self.batch, self.loss_of, self.step = net, batch, loss, step
        self.beside = list(beside)
        self.optimizer = optimizer([one for one in net.parameters() if one.requires_grad])
        self.before_forward = lambda: None

    def tensors(self):
        nets = [self.net, *self.beside]
        kept = [one for state in self.optimizer.state.values() for one in state.values()
                if isinstance(one, torch.Tensor)]
        return [*(one for net in nets for one in (*net.parameters(), *net.buffers())), *self.batch, *kept]

    def loss(self):
        self.before_forward()
        return self.loss_of(self.net, *self.batch)

    def run(self, steps):
        for _ in range(steps):
            self.step(self)


class HubTraining(Training):
    """Of a model of transformers. It asks whether its rows are packed, which fake tensors cannot say;
    without an answer it would make a mask that a card does not get."""

    def run(self, steps):
        is_fake = isinstance(self.batch[0], FakeTensor)
        with Answers(True) if is_fake else contextlib.nullcontext():
            super().run(steps)
