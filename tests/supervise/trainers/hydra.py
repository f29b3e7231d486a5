#!/usr/bin/env python3
"""A training script in Hydra's manner: key=value arguments over a config.yaml.

    hydra.py training.batch_size=24 training.accum=2 out=DIR [resume=CHECKPOINT]
    hydra.py --config-path config.yaml out=DIR
"""
import sys

import loop
import memory
import tiny_yaml
from nature import Nature

DEFAULTS = {"training": {"batch_size": 24, "accum": 1, "samples": 192}, "out": ".", "resume": ""}


def merge(config, other):
    for key, value in other.items():
        if isinstance(value, dict):
            merge(config.setdefault(key, {}), value)
        else:
            config[key] = value


def override(config, argument):
    path, _, value = argument.partition("=")
    *sections, key = path.lstrip("+").split(".")
    for section in sections:
        config = config[section]
    config[key] = tiny_yaml.scalar(value)


def composed(arguments):
    config = DEFAULTS
    if "--config-path" in arguments:
        at = arguments.index("--config-path")
        with open(arguments[at + 1]) as file:
            merge(config, tiny_yaml.load(file.read()))
        arguments = arguments[:at] + arguments[at + 2:]
    for argument in arguments:
        if "=" not in argument:
            sys.exit(f"mismatched input '{argument}' expecting a key=value override")
        override(config, argument)
    return config


def main():
    config, nature = composed(sys.argv[1:]), Nature.mine()
    training = config["training"]
    settings = loop.Settings(training["batch_size"], training["accum"], training["samples"],
                             config["out"], config["resume"] or "")
    loop.note_process(settings)
    print(f"[2026-01-01 00:00:00,000][__main__][INFO] - {training}", flush=True)
    loop.run(settings, nature,
             lambda: loop.train(settings, memory.open_memory(nature), nature))


if __name__ == "__main__":
    main()
