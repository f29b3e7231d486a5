"""What torch itself has with the memory of other packages' kernels: bitsandbytes' 8-bit AdamW, apex's norms and
Adam, xformers' attention."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn
from torch.nn import functional as F

from headroom import eight_bit
from headroom.eight_bit import AdamW8bit
from headroom.errors import UnavailableError

Tensor = torch.Tensor


class FusedRMSNorm(nn.RMSNorm):
    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
                 **more: Any) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class FusedLayerNorm(nn.LayerNorm):
    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
                 **more: Any) -> None:
        super().__init__(normalized_shape, eps, elementwise_affine)


class LowerTriangularMask:
    """Of xformers.ops: position i sees those up to i."""


def memory_efficient_attention(query: Tensor, key: Tensor, value: Tensor, attn_bias: Any = None, p: float = 0.0,
                               scale: Optional[float] = None, **more: Any) -> Tensor:
    """(batch, length, heads, width), or without heads."""
    if query.dim() == 3:
        return memory_efficient_attention(query[:, :, None], key[:, :, None], value[:, :, None], attn_bias, p,
                                          scale)[:, :, 0]
    causal = isinstance(attn_bias, LowerTriangularMask)
    mask = None if causal else attn_bias
    out = F.scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask, p,
                                         causal, scale=scale)
    return out.transpose(1, 2)


def _adamw(params: Any, lr: float = 1e-3, bias_correction: bool = True, betas: Any = (0.9, 0.999), eps: float = 1e-8,
           adam_w_mode: bool = True, weight_decay: float = 0.0, *unused: Any, **more: Any) -> torch.optim.Optimizer:
    kind = torch.optim.AdamW if adam_w_mode else torch.optim.Adam
    return kind(params, lr, betas, eps, weight_decay, fused=True)


def _of_bits(params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
             amsgrad: bool = False, optim_bits: int = 32, *unused: Any, is_paged: bool = False,
             **more: Any) -> torch.optim.Optimizer:
    """bitsandbytes.optim.AdamW and Adam"""
    if is_paged:
        raise UnavailableError("[as_cuda] bitsandbytes' paged optimizers keep states in memory that a driver moves; "
                               "try is_paged=False (the states are then on the card)")
    return AdamW8bit(params, lr, betas, eps, weight_decay, least=eight_bit.LEAST if optim_bits == 8 else None)


class GlobalOptimManager:
    """Of bitsandbytes.optim: weights whose states stay whole."""

    @classmethod
    def get_instance(cls) -> GlobalOptimManager:
        return cls()

    def register_parameters(self, params: Any) -> None:
        """Nothing is to be known of them."""

    def register_module_override(self, module: nn.Module, param_name: str, config: dict[str, Any]) -> None:
        if config.get("optim_bits") == 32:
            eight_bit.whole.add(id(getattr(module, param_name)))


KNOWN: dict[str, dict[str, Any]] = {
    "apex.normalization": {"FusedRMSNorm": FusedRMSNorm, "MixedFusedRMSNorm": FusedRMSNorm,
                           "FusedLayerNorm": FusedLayerNorm, "MixedFusedLayerNorm": FusedLayerNorm},
    "apex.optimizers": {"FusedAdam": _adamw},
    "bitsandbytes": {"features": {"multi_backend"}, "supported_torch_devices": {"cpu", "cuda"}},
    "bitsandbytes.optim": {"AdamW8bit": AdamW8bit, "Adam8bit": AdamW8bit, "AdamW": _of_bits, "Adam": _of_bits,
                           "GlobalOptimManager": GlobalOptimManager},
    "xformers.ops": {"memory_efficient_attention": memory_efficient_attention,
                     "LowerTriangularMask": LowerTriangularMask, "unbind": torch.unbind},
}
for _name in ("apex.normalization.fused_layer_norm", "bitsandbytes.optim.adamw", "bitsandbytes.optim.adam"):
    KNOWN[_name] = KNOWN[_name.rpartition(".")[0]]
