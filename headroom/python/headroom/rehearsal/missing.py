"""Weights that are missing: the shapes of the model's configuration stand in, and the answer names them."""
from __future__ import annotations

import copy
import functools
import inspect
import os
from typing import Any

import torch
from torch import nn

from headroom.imports import after_import
from headroom.masquerade.foreign import say_once

_stood_in: list[str] = []


def stood_in() -> list[str]:
    return list(_stood_in)


def install() -> None:
    after_import("transformers.modeling_utils", _of_transformers)
    after_import("diffusers.models.modeling_utils", _of_diffusers)
    after_import("huggingface_hub.hub_mixin", _of_the_hub)
    _downloads()


def _placed(model: nn.Module, places: Any) -> nn.Module:
    """As from_pretrained(device_map=...) does: on one device, or spread over the cards."""
    if places is None:
        return model
    if isinstance(places, dict) and list(places) == [""]:
        places = places[""]
    if isinstance(places, (int, torch.device)) or (isinstance(places, str) and
                                                   places.partition(":")[0] in ("cuda", "cpu")):
        return model.to(places)
    from accelerate import dispatch_model, infer_auto_device_map  # type: ignore[import-not-found,unused-ignore]
    if not isinstance(places, dict):
        places = infer_auto_device_map(model, no_split_module_classes=getattr(model, "_no_split_modules", None))
    return dispatch_model(model, places)  # type: ignore[no-any-return]


def _standing_in(name: Any) -> None:
    say_once(f"the weights of {name} are missing; its configuration has their shapes")
    if str(name) not in _stood_in:
        _stood_in.append(str(name))


def _of_transformers(module: Any) -> None:
    """from_pretrained without weights: the model of its configuration."""
    model = module.PreTrainedModel
    before = model.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any = None, *arguments: Any, **more: Any) -> Any:
        try:
            return before(cls, name, *arguments, **more)
        except OSError as error:
            config = more.get("config")
            if config is None or not hasattr(config, "to_dict"):
                try:
                    config = cls.config_class.from_pretrained(name)
                except Exception:
                    raise error from None
            _standing_in(name)
            if more.get("quantization_config") is not None:
                return before(cls, None, *arguments, **{**more, "config": config, "state_dict": _weights(cls, config)})
            dtype = more.get("dtype", more.get("torch_dtype"))
            made = {} if dtype in (None, "auto") else {"dtype": getattr(torch, dtype) if isinstance(dtype, str)
                                                       else dtype}
            found = cls._from_config(config, **made)
            found.eval()
            return _placed(found, more.get("device_map"))

    model.from_pretrained = classmethod(from_pretrained)


def _weights(cls: Any, config: Any) -> dict[str, torch.Tensor]:
    """What a file would have, for a model that is quantised as it is loaded."""
    with torch.device("meta"):
        shapes = cls(copy.deepcopy(config)).state_dict()
    floating = getattr(config, "dtype", None) or torch.float32
    return {name: torch.empty(one.shape, dtype=floating if one.is_floating_point() else one.dtype)
            for name, one in shapes.items()}


def _of_diffusers(module: Any) -> None:
    model = module.ModelMixin
    before = model.from_pretrained.__func__

    def from_pretrained(cls: Any, name: Any, **more: Any) -> Any:
        try:
            return before(cls, name, **more)
        except OSError as error:
            where = {key: more[key] for key in ("subfolder", "cache_dir", "revision", "token") if key in more}
            try:
                config = cls.load_config(name, **where)
            except Exception:
                raise error from None
            _standing_in(os.path.join(str(name), more.get("subfolder") or "").rstrip(os.sep))
            found = cls.from_config(config).eval()
            dtype = more.get("torch_dtype")
            return _placed(found if dtype in (None, "auto") else found.to(dtype), more.get("device_map"))

    model.from_pretrained = classmethod(from_pretrained)


def _of_the_hub(module: Any) -> None:
    """Models of other libraries that are shared on the hub: their class makes them before it loads."""
    mixin = module.PyTorchModelHubMixin
    before = mixin._from_pretrained.__func__

    def from_pretrained(cls: Any, *, model_id: Any, **more: Any) -> Any:
        try:
            return before(cls, model_id=model_id, **more)
        except OSError:
            _standing_in(model_id)
            known = inspect.signature(before).parameters
            return cls(**{key: value for key, value in more.items() if key not in known})

    mixin._from_pretrained = classmethod(from_pretrained)


class _Missing(dict[str, Any]):
    """A dictionary of weights that could not be had; to load it changes nothing."""


def _downloads() -> None:
    """Weights by their address (torchvision's) where there is no network."""
    download, load = torch.hub.load_state_dict_from_url, nn.Module.load_state_dict

    @functools.wraps(download)
    def downloaded(url: str, *arguments: Any, **more: Any) -> Any:
        try:
            return download(url, *arguments, **more)
        except OSError:  # urllib's errors are
            _standing_in(url)
            return _Missing()

    @functools.wraps(load)
    def loaded(self: nn.Module, state_dict: Any, *arguments: Any, **more: Any) -> Any:
        if isinstance(state_dict, _Missing):
            return nn.modules.module._IncompatibleKeys([], [])
        return load(self, state_dict, *arguments, **more)

    torch.hub.load_state_dict_from_url = downloaded
    nn.Module.load_state_dict = loaded  # type: ignore[method-assign]
