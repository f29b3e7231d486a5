"""What PyTorch's optimizers, gradient clipping and loss scaling make of small fixed parameters.

  optimizers.py [--write optimizers.json | --check optimizers.json]

tests/optim compares Headroom's with the stored figures. Start and gradients are cosines that C++
repeats: element k of parameter i starts at cos(1.7 i + 0.9 k) / 2, its gradient in step s is
cos(0.7 i + 0.3 k + 1.1 s). --check fails where a figure differs from the stored one by more than
rounding does."""
import argparse
import json
import math
import pathlib
import sys

import torch
import transformers

from differences import differences

STEPS = 5
SHAPES = [[3, 4], [5], [2, 3, 2], []]
FORMS = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def values(shape, value, dtype):
    count = math.prod(shape)
    numbers = torch.tensor([value(k) for k in range(count)], dtype=torch.float64)
    return numbers.reshape(shape).to(dtype)


def start(dtype, shapes=SHAPES):
    return [torch.nn.Parameter(values(shape, lambda k, i=i: math.cos(1.7 * i + 0.9 * k) / 2, dtype))
            for i, shape in enumerate(shapes)]


def set_gradients(parameters, step):
    for i, parameter in enumerate(parameters):
        parameter.grad = values(parameter.shape, lambda k, i=i: math.cos(0.7 * i + 0.3 * k + 1.1 * step),
                                parameter.dtype)


def cases():
    def case(name, kind, forms, options, dtype="float32"):
        for form in forms:
            yield {"name": f"{name}_{form}", "kind": kind, "form": form, "options": options,
                   "dtype": dtype}
    every, two = ["loop", "foreach", "fused"], ["loop", "foreach"]
    yield from case("sgd", "SGD", every, {})
    yield from case("sgd_decay", "SGD", every, {"lr": 0.1, "weight_decay": 0.1})
    yield from case("sgd_momentum", "SGD", every, {"lr": 0.1, "momentum": 0.9})
    yield from case("sgd_dampening", "SGD", every,
                    {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1})
    yield from case("sgd_nesterov", "SGD", every, {"lr": 0.1, "momentum": 0.9, "nesterov": True})
    yield from case("sgd_momentum_bfloat16", "SGD", every, {"lr": 0.1, "momentum": 0.9}, "bfloat16")
    for kind in ["Adam", "AdamW"]:
        name = kind.lower()
        yield from case(name, kind, every, {})
        yield from case(f"{name}_decay", kind, every, {"lr": 0.1, "weight_decay": 0.1})
        yield from case(f"{name}_amsgrad", kind, every,
                        {"lr": 0.1, "betas": [0.5, 0.6], "eps": 1e-3, "amsgrad": True})
        yield from case(f"{name}_bfloat16", kind, every, {"lr": 0.1}, "bfloat16")
    yield from case("rmsprop", "RMSprop", two, {})
    yield from case("rmsprop_decay", "RMSprop", two, {"lr": 0.1, "weight_decay": 0.1, "alpha": 0.5})
    yield from case("rmsprop_momentum", "RMSprop", two, {"lr": 0.1, "momentum": 0.9, "eps": 1e-3})
    yield from case("rmsprop_centered", "RMSprop", two,
                    {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1, "centered": True})
    yield from case("rmsprop_bfloat16", "RMSprop", two, {"lr": 0.1}, "bfloat16")
    yield from case("adafactor", "Adafactor", two, {})
    yield from case("adafactor_decay", "Adafactor", two,
                    {"lr": 0.1, "weight_decay": 0.1, "beta2_decay": -0.5, "eps": [1e-4, 1e-2], "d": 2.0})
    yield from case("adafactor_bfloat16", "Adafactor", two, {"lr": 0.1}, "bfloat16")
    fixed = {"lr": 0.1, "scale_parameter": False, "relative_step": False}
    yield from case("adafactor_hf", "transformers", ["loop"], {})
    yield from case("adafactor_hf_fixed", "transformers", ["loop"],
                    {**fixed, "weight_decay": 0.1, "clip_threshold": 0.5})
    yield from case("adafactor_hf_warmup", "transformers", ["loop"],
                    {"warmup_init": True, "beta1": 0.9, "weight_decay": 0.1})
    yield from case("adafactor_hf_bfloat16", "transformers", ["loop"], fixed, "bfloat16")


def optimizer_of(case, parameters):
    if case["kind"] == "transformers":
        return transformers.optimization.Adafactor(parameters, **case["options"])
    return getattr(torch.optim, case["kind"])(parameters, **case["options"], **FORMS[case["form"]])


def flat(tensor):
    """Nine digits say a float32 exactly."""
    return [float(f"{x:.9g}") for x in torch.as_tensor(tensor).detach().double().flatten().tolist()]


def trained(case):
    parameters = start(TYPES[case["dtype"]])
    optimizer = optimizer_of(case, parameters)
    for step in range(STEPS):
        set_gradients(parameters, step)
        optimizer.step()
    states = [{name: flat(value) for name, value in optimizer.state[parameter].items()
               if value is not None} for parameter in parameters]
    return {**case, "parameters": [flat(parameter) for parameter in parameters], "states": states}


def clipped(longest, order):
    parameters = start(torch.float32)
    set_gradients(parameters, 0)
    norm = torch.nn.utils.clip_grad_norm_(parameters, longest, order)
    return {"longest": longest, "order": order, "norm": norm.item(),
            "gradients": [flat(parameter.grad) for parameter in parameters]}


def scaled(form, unscale_first):
    """Six steps of SGD; the gradients of the third are infinite."""
    parameters = start(torch.float32)
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, **FORMS[form])
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    factors = []
    for step in range(6):
        factor = scaler.scale(torch.ones(())).item()
        set_gradients(parameters, step)
        for parameter in parameters:
            parameter.grad *= factor
        if step == 2:
            parameters[1].grad[3] = math.inf
        if unscale_first:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        factors.append(scaler.get_scale())
    return {"form": form, "unscale_first": unscale_first, "factors": factors,
            "parameters": [flat(parameter) for parameter in parameters]}


def text_of(figures):
    """A line for each thing that was computed."""
    parts = []
    for key, value in figures.items():
        rows = ",\n".join(json.dumps(row) for row in value) if isinstance(value, list) else None
        many = rows is not None and isinstance(value[0], dict)
        parts.append(f"{json.dumps(key)}: [\n{rows}\n]" if many else
                     f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write")
    parser.add_argument("--check")
    options = parser.parse_args()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    figures = {"versions": versions, "steps": STEPS, "shapes": SHAPES,
               "trained": [trained(case) for case in cases()],
               "clipped": [clipped(1.0, 2.0), clipped(100.0, 2.0), clipped(0.5, math.inf)],
               "scaled": [scaled(form, first) for form in ("loop", "fused") for first in (False, True)]}
    for one in figures["clipped"]:
        one["order"] = "inf" if one["order"] == math.inf else one["order"]
    if options.write:
        pathlib.Path(options.write).write_text(text_of(figures))
    if options.check:
        stored = json.loads(pathlib.Path(options.check).read_text())
        # In bfloat16, a result may be the neighbouring number.
        wrong = differences(json.loads(json.dumps(figures)), stored, share=2e-6, in_bfloat16=0.01)
        print("\n".join(wrong[:20]) or "all as stored")
        sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
