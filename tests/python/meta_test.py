"""Headroom's shapes on a card beside those of Meta tensors, where torch's kernels for Python answer:
every operator of torch's own operator database, in up to twelve calls each."""
import collections
import sys
import warnings

import torch
from torch.utils._pytree import tree_leaves, tree_map

import headroom

warnings.filterwarnings("ignore")
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

CALLS = 12
AT_LEAST = 4000  # calls that both answer

# Operators where they differ, and the side that is right for a card.
NAMED = {
    "_native_batch_norm_legit": "in evaluation CUDA saves nothing; Meta gives the size of training",
    "native_batch_norm": "in evaluation CUDA saves nothing; Meta gives the size of training",
    "as_strided.partial_views": "the case is a view of a larger memory, which a copy to a card is not",
    "linalg.eig": "vectors column by column, as LAPACK and CUDA's libraries leave them",
    "linalg.svd": "vectors column by column, as LAPACK and CUDA's libraries leave them",
    "pca_lowrank": "of linalg.svd",
    "svd_lowrank": "of linalg.svd",
    "nn.functional.scaled_dot_product_attention": "the strides of CUDA's flash kernel",
}


def tensors(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def on(device, value):
    def moved(leaf):
        if isinstance(leaf, torch.Tensor):
            return leaf.to(device)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf
    return tree_map(moved, value)


def answer(op, sample, device):
    try:
        return tensors(op(on(device, sample.input), *on(device, sample.args),
                          **on(device, sample.kwargs))), None
    except Exception as error:  # what it says is compared, whatever it is
        return None, error


def difference(meta, card):
    if len(meta) != len(card):
        return f"{len(meta)} results against {len(card)}"
    for one, other in zip(meta, card):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{tuple(one.shape)} {one.dtype} against {tuple(other.shape)} {other.dtype}"
        both_strided = one.layout == other.layout == torch.strided
        if both_strided and one.numel() > 1 and one.stride() != other.stride():
            return f"strides {one.stride()} against {other.stride()} of {tuple(one.shape)}"
    return ""


def samples_of(op):
    if torch.float32 not in op.supported_dtypes("cpu"):
        return []
    return list(op.sample_inputs("cpu", torch.float32))[:CALLS]


def main():
    counts, wrong = collections.Counter(), {}
    with headroom.simulate("unlimited"):
        for op in op_db:
            name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
            for sample in samples_of(op):
                meta, refused = answer(op.op, sample, "meta")
                if refused is not None:
                    counts["Meta refuses"] += 1
                    continue
                card, refused = answer(op.op, sample, "sim:0")
                problem = difference(meta, card) if refused is None else f"refused: {refused}"
                counts["differ" if problem else "alike"] += 1
                if problem:
                    wrong[name] = problem
    print(f"{len(op_db)} operators: " + ", ".join(f"{count} calls {how}" for how, count in counts.items()))
    for name, problem in sorted(wrong.items()):
        print(f"{name}: {problem} ({NAMED.get(name, 'NOT NAMED')})")
    unused = set(NAMED) - set(wrong)
    print("\n".join(f"{name}: is named and does not differ" for name in sorted(unused)))
    sys.exit(bool(set(wrong) - set(NAMED)) or bool(unused) or counts["alike"] < AT_LEAST)


if __name__ == "__main__":
    main()
