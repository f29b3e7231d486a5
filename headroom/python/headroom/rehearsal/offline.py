"""A script that is rehearsed reports to no server."""
from __future__ import annotations

import os
from typing import Any

from headroom.imports import after_import
from headroom.masquerade.foreign import say_once


def _nothing(*arguments: Any, **more: Any) -> Any:
    say_once("nothing is uploaded")
    return None


def install() -> None:
    os.environ.update(WANDB_MODE="disabled", COMET_MODE="DISABLED", NEPTUNE_MODE="debug",
                      CLEARML_OFFLINE_MODE="1", SWANLAB_MODE="disabled")

    def of_the_hub(module: Any) -> None:
        for name in ("upload_file", "upload_folder", "create_commit", "create_repo", "upload_large_folder"):
            if hasattr(module.HfApi, name):
                setattr(module.HfApi, name, _nothing)

    def of_mlflow(module: Any) -> None:
        for name in dir(module):
            if name.startswith(("log_", "set_", "autolog", "register_model")):
                setattr(module, name, _nothing)

    after_import("huggingface_hub.hf_api", of_the_hub)
    after_import("mlflow", of_mlflow)
