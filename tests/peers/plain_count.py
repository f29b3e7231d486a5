"""A second judge, simpler than MemTracker: the bytes of every storage that an operator returns, from
then until it dies. No categories, no modules, no hooks."""
import weakref

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary


class PlainCount(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.known = WeakIdKeyDictionary()
        self.current = self.peak = 0
        self.peak_operator = ""

    def add(self, tensor, size=None):
        storage = tensor.untyped_storage()
        if storage in self.known:
            return
        size = storage.nbytes() if size is None else size
        self.known[storage] = size
        weakref.finalize(storage, self.drop, size)
        self.current += size

    def drop(self, size):
        self.current -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        self.note_peak(func)
        return result

    def note_peak(self, func):
        if self.current > self.peak:
            self.peak, self.peak_operator = self.current, str(func)


class RealCount(PlainCount):
    """As PlainCount, where a dispatch mode with fake tensors differs from the CPU itself put right:

    - Autograd sums the gradients of a tensor that was used more than once into the first of them if
      no other owner holds that one (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace), but
      never where a dispatch mode is on: every tensor then counts as subclass-like
      (ATen/TensorSubclassLikeUtils.h). Here those sums are made in place.
    - The CPU's mse_loss shrinks its result from one loss an element to one number and keeps the
      memory; the fake one has a decomposition in Python whose result has four bytes. Here the CPU's
      kernel is asked.
    - The CPU's layer of an LSTM keeps oneDNN's workspace for its backward pass; the fake one has none
      (torch/_meta_registrations.py, mkldnn_rnn_layer). Here, too, the CPU's kernel is asked."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.add.Tensor and is_sum_of_gradients(args):
            return torch.ops.aten.add_.Tensor(*args)
        if func is torch.ops.aten.mkldnn_rnn_layer.default:
            return self.layer_of_lstm(func, args)
        if func is not torch.ops.aten.mse_loss.default:
            return super().__torch_dispatch__(func, types, args, kwargs)
        result = func(*args, **(kwargs or {}))
        with unset_fake_temporarily():
            real = [torch.zeros(x.shape, dtype=x.dtype) for x in args[:2]]
            size = func(*real, *args[2:], **(kwargs or {})).untyped_storage().nbytes()
        self.add(result, size)
        self.note_peak(func)
        return result

    def layer_of_lstm(self, func, args):
        *results, workspace = func(*args)
        with unset_fake_temporarily():
            real = func(*[torch.zeros(x.shape, dtype=x.dtype) for x in args[:7]], *args[7:])
        for result in results:
            self.add(result)
        self.add(workspace, real[3].untyped_storage().nbytes())
        self.note_peak(func)
        return (*results, workspace)


def is_sum_of_gradients(args):
    """In backward no formula of these nets adds two tensors of a shape: such an addition is the
    engine's. The first must be dense, and of its storage hold one reference itself (and this
    function one)."""
    if torch._C._current_autograd_node() is None or torch.is_grad_enabled() or len(args) != 2:
        return False
    first, second = args
    if not isinstance(second, torch.Tensor) or first.shape != second.shape:
        return False
    storage = first.untyped_storage()
    dense = is_non_overlapping_and_dense_or_false(first)
    return dense and torch._C._storage_Use_Count(storage._cdata) == 2
