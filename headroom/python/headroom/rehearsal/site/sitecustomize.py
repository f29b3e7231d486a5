"""Python runs this file at its start, because `headroom rehearse` and `headroom run --spill` put its folder first
into PYTHONPATH. It has no effect until the program imports torch."""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_the_next_one() -> None:
    """The environment's own sitecustomize, which this one hides."""
    others = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    found = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Starts them when torch has been imported. Programs also look for torch without importing it."""

    looking = False

    def find_spec(self, name, path, target=None):  # type: ignore[no-untyped-def]
        if name != "torch" or self.looking:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self.looking = False
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module) -> None:  # type: ignore[no-untyped-def]
            sys.meta_path.remove(self)
            load(module)
            _start()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _start() -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
    if importlib.util.find_spec("headroom") is None:
        sys.path.append(root)
    if "HEADROOM_REHEARSAL" in os.environ:
        from headroom.rehearsal import start
        start()
    else:
        from headroom.spill_run import start
        start()


def _refuse_to_save_a_notebook() -> None:
    """The program that runs a notebook's kernel would write what a rehearsal printed into it."""
    if any("jupyter" in os.path.basename(one) for one in sys.orig_argv[:3]) and "--inplace" in sys.orig_argv:
        print("headroom rehearse: --inplace would write into the notebook; try jupyter execute without it",
              file=sys.stderr, flush=True)
        os._exit(64)


if "HEADROOM_REHEARSAL" in os.environ:
    _refuse_to_save_a_notebook()
if "HEADROOM_REHEARSAL" in os.environ or "HEADROOM_SPILL" in os.environ:
    sys.meta_path.insert(0, _AfterTorch())
_run_the_next_one()
