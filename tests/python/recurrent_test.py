"""Recurrent layers: the CPU's memory to the byte, and lengths that belong to the host."""
import unittest
import weakref

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import headroom


class Count(TorchDispatchMode):
    """The most bytes of tensors at one time, of the results of operators."""

    def __init__(self):
        super().__init__()
        self.live, self.now, self.peak = set(), 0, 0

    def see(self, tensor):
        if not isinstance(tensor, torch.Tensor) or tensor.untyped_storage()._cdata in self.live:
            return
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        self.live.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.freed, key, size)

    def freed(self, key, size):
        self.live.discard(key)
        self.now -= size

    def __torch_dispatch__(self, function, types, arguments=(), more=None):
        result = function(*arguments, **(more or {}))
        pytree.tree_map(self.see, result)
        return result


class First(nn.Module):
    """A layer, of whose results the first is the output."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def one_by_one(parameters):
    return torch.optim.SGD(parameters, lr=0.1, foreach=False)


def counted(model, x):
    """Two real steps on the CPU."""
    optimizer, count = one_by_one(model.parameters()), Count()
    for tensor in (*model.parameters(), x):
        count.see(tensor)
    with count:
        for _ in range(2):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
    return count.peak


def requested(report):
    return report.document()["peak"]["requested_bytes"]


def estimated(model, x):
    return requested(headroom.estimate(model, x, optimizer=one_by_one, rules="cpu"))


class OnTheCpu(unittest.TestCase):
    """--rules cpu took a seventh of an LSTM's memory: oneDNN's workspace was left out."""

    def test_an_lstm_is_equal_to_the_byte(self):
        steps, batch = 35, 20
        cases = ((650, 2, False, False, {}), (64, 1, False, True, {}), (100, 2, True, False, {}),
                 (256, 2, True, True, {}), (40, 3, False, False, {"bias": False}),
                 (40, 2, False, True, {"dropout": 0.5}))
        for size, layers, both, first, more in cases:
            with self.subTest(size=size, layers=layers, both=both, first=first, **more):
                model = First(nn.LSTM(size, size, layers, bidirectional=both, batch_first=first, **more))
                x = torch.zeros((batch, steps, size) if first else (steps, batch, size))
                # Within backward of a layer ATen also holds the sum of its biases, zeros for the gradients of the last
                # states, and a copy of a gradient that is a part of a wider one or comes by sequence; an operator's
                # results do not tell.
                within = 4 * (4 * size + 2 * batch * size + (both or first) * steps * batch * size)
                self.assertEqual(estimated(model, x), counted(model, x) + within)

    def test_what_onednn_does_not_run_is_equal_to_the_byte(self):
        x = torch.zeros(20, 8, 30)
        for layer in (nn.GRU(30, 40, 2), nn.GRU(30, 40, 2, bidirectional=True), nn.RNN(30, 40, bidirectional=True),
                      nn.LSTM(30, 40, bidirectional=True, proj_size=20)):
            with self.subTest(layer=layer):
                self.assertEqual(estimated(First(layer), x), counted(First(layer), x))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0]


class LengthsOfPackedSequences(unittest.TestCase):
    """A batch moves to the card as a whole, and pack_padded_sequence takes its lengths from the host alone."""

    def test_they_are_brought_back(self):
        lengths = torch.tensor([7, 5, 3, 1])
        given = headroom.estimate(Packed(), (torch.randn(4, 7, 8), lengths))
        made = headroom.estimate(Packed(), lambda: (torch.randn(4, 7, 8), torch.tensor([7, 5, 3, 1], device="cpu")))
        self.assertEqual(given.peak.allocated, made.peak.allocated)
        shorter = headroom.estimate(Packed(), (torch.randn(4, 7, 8), torch.ones(4, dtype=torch.long)))
        self.assertLess(requested(shorter), requested(given))

    def test_in_a_forward_pass_and_in_a_search(self):
        report = headroom.estimate(Packed(), (torch.randn(4, 7, 8), torch.tensor([7, 5, 3, 1])), mode="inference")
        self.assertTrue(report.fits)
        found = headroom.find_max_batch_size(Packed(), lambda n: (torch.randn(n, 7, 8), torch.full((n,), 7)),
                                             gpu="1GiB", max_batch=4)
        self.assertEqual(int(found), 4)

    def test_outside_of_an_estimate_a_card_refuses_them_as_cuda_does(self):
        with headroom.simulate("1GiB"):
            model = Packed().to("sim")
            with self.assertRaisesRegex(RuntimeError, "should be a 1D CPU int64 tensor"):
                model(torch.randn(4, 7, 8, device="sim"), torch.tensor([7, 5, 3, 1], device="sim"))


if __name__ == "__main__":
    unittest.main()
