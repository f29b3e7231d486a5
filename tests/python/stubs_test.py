"""The stubs of the two modules in C++ beside the modules themselves: a binding without a stub fails,
and so does a stub without its binding."""
import ast
import pathlib
import unittest

import torch  # noqa: F401 - what _engine links to

import headroom
from headroom import _core, _engine


def call(arguments, nameless=()):
    """(name, has a default) of each but self; None for a private name."""
    every = [*arguments.posonlyargs, *arguments.args]
    first = len(every) - len(arguments.defaults)
    return [(None if one in arguments.posonlyargs or one.arg in nameless else one.arg, i >= first)
            for i, one in enumerate(every) if one.arg != "self"]


def of_stub(body):
    """What a stub declares: {name: call of a function, {...} of a class, "property", "settable", "value"}."""
    found = {}
    for one in body:
        if isinstance(one, ast.ClassDef):
            found[one.name] = of_stub(one.body)
        elif isinstance(one, ast.AnnAssign):
            found[one.target.id] = "value"
        elif isinstance(one, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in one.decorator_list]
            if "property" in decorators:
                found[one.name] = "property"
            elif f"{one.name}.setter" in decorators:
                found[one.name] = "settable"
            else:
                found[one.name] = call(one.args)
    return found


def signature(function):
    """As pybind11 writes it into the first line of the docstring; arg0 and so on stand for no name."""
    line = function.__doc__.strip().splitlines()[0]
    return call(ast.parse(f"def {line}: ...").body[0].args, {f"arg{i}" for i in range(20)})


def of_module(names):
    found = {}
    for name, value in names.items():
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(value, type):
            found[name] = of_module(vars(value))
        elif isinstance(value, property):
            found[name] = "property" if value.fset is None else "settable"
        elif callable(value):
            if value.__doc__ and "->" in value.__doc__:  # the others are object's own __init__
                found[name] = signature(value)
        else:
            found[name] = "value"
    return found


class Stubs(unittest.TestCase):
    maxDiff = None

    def test_each_binding_has_its_stub_and_the_other_way_round(self):
        for module in (_core, _engine):
            stub = pathlib.Path(headroom.__file__).parent / f"{module.__name__.split('.')[1]}.pyi"
            declared = of_stub(ast.parse(stub.read_text(encoding="utf-8")).body)
            with self.subTest(module.__name__):
                self.assertEqual(declared, of_module(vars(module)))

    def test_what_differs_is_seen(self):
        declared = of_stub(ast.parse("def size_text(size: int) -> str: ...\nversion: str").body)
        of_core = of_module({"size_text": _core.size_text, "version": _core.version})
        self.assertEqual(declared["version"], of_core["version"])
        self.assertNotEqual(declared["size_text"], of_core["size_text"])
        self.assertEqual(of_core["size_text"], [(None, False)])


if __name__ == "__main__":
    unittest.main()
