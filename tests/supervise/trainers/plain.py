#!/usr/bin/env python3
"""A training script as most are: argparse and a loop.

    plain.py --batch-size 24 --accum 2 --samples 192 --out DIR [--resume CHECKPOINT]
"""
import argparse

import loop
import memory
from nature import Nature


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--accum", type=int, default=1)
    parser.add_argument("--samples", type=int, default=192)
    parser.add_argument("--resume", default="")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    return loop.Settings(args.batch_size, args.accum, args.samples, args.out, args.resume)


def main():
    settings, nature = parse(), Nature.mine()
    loop.note_process(settings)
    print(f"batch {settings.batch} x {settings.accum}", flush=True)
    loop.run(settings, nature,
             lambda: loop.train(settings, memory.open_memory(nature), nature))


if __name__ == "__main__":
    main()
