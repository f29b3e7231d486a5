"""Stands in for the package flash_attn: torch's own flash attention, whose forward pass keeps q, k, v, the output
and the sums of the softmax for backward, as the package's does."""
from __future__ import annotations

import types
from typing import Any, Optional

import torch
from torch.nn import functional as F

MODULES = ("flash_attn", "flash_attn.flash_attn_interface", "flash_attn.bert_padding")

Tensor = torch.Tensor


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                    causal: bool = False, *options: Any, **more: Any) -> Tensor:
    """q, k, v: (batch, length, heads, width)."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), dropout_p=dropout_p, scale=softmax_scale,
            is_causal=causal, enable_gqa=k.size(2) != q.size(2))
    return out.transpose(1, 2)


def flash_attn_qkvpacked_func(qkv: Tensor, *arguments: Any, **more: Any) -> Tensor:
    return flash_attn_func(*qkv.unbind(2), *arguments, **more)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *arguments: Any, **more: Any) -> Tensor:
    return flash_attn_func(q, *kv.unbind(2), *arguments, **more)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                           max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                           softmax_scale: Optional[float] = None, causal: bool = False, *options: Any,
                           **more: Any) -> Tensor:
    """Sequences one behind the other: (tokens, heads, width). Memory does not depend on where they end."""
    return flash_attn_func(q[None], k[None], v[None], dropout_p, softmax_scale, causal)[0]


def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *arguments: Any,
                                     **more: Any) -> Tensor:
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **more)


# ---- flash_attn.bert_padding

def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    return x[indices]


def unpad_input(hidden_states: Tensor, attention_mask: Tensor, *unused: Any) -> tuple[Any, ...]:
    lengths = attention_mask.sum(-1, dtype=torch.int32)
    indices = attention_mask.flatten().nonzero().flatten()
    bounds = F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = hidden_states.flatten(0, 1)[indices]
    return rows, indices, bounds, int(lengths.max().item()), lengths


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    out = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    out[indices] = hidden_states
    return out.view(batch, seqlen, *hidden_states.shape[1:])


def fill(module: types.ModuleType) -> None:
    """Gives a module of the package its functions."""
    for name, value in globals().items():
        if isinstance(value, types.FunctionType) and name != "fill":
            setattr(module, name, value)
    module.__version__ = "2.8.3"  # type: ignore[attr-defined]
