#!/usr/bin/env python3
"""A training run in miniature: each sample of a micro-batch allocates 4 MiB of host memory. The program
does not use Headroom; docs/guides/run-any-command.md runs it."""
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--accum", type=int, default=1)
parser.add_argument("--steps", type=int, default=2)
options = parser.parse_args()

for step in range(1, options.steps + 1):
    samples = 0
    for _ in range(options.accum):
        activations = [bytearray(4 << 20) for _ in range(options.batch_size)]
        samples += len(activations)
        del activations
    print(f"step {step}: {samples} samples in {options.accum} parts", flush=True)
