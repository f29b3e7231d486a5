#!/usr/bin/env python3
"""`headroom train` in fewer bits: each of quantize, dtype, optimizer and kind of training that belong together trains a
small GPT, its loss falls, and a run that was resumed halfway has the weights of one that was not. Those that do not
belong together are refused in words, before a file is written.

    fewer_bits.py HEADROOM [--all]    without --all one in 23
"""
import argparse
import itertools
import json
import os
import pathlib
import struct
import subprocess
import tempfile

QUANTIZE = ["none", "8bit", "4bit", "auto"]
DTYPE = ["float32", "bfloat16"]
OPTIMIZER = ["adamw", "adam", "sgd", "sgd-momentum", "adafactor", "adafactor-hf", "adamw8bit", "adamw4bit"]
MODEL = ["lora", "linear_probe", "full"]
GPT = {"model_type": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 64, "n_layer": 2, "n_head": 2,
       "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": False,
       "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
STEPS = 30


def write_world(folder):
    (folder / "config.json").write_text(json.dumps(GPT))
    # Each token is followed by one of two.
    tokens = [1]
    while len(tokens) < 8192:
        tokens.append((tokens[-1] * 5 + 7 * (len(tokens) % 2)) % 64)
    for name in ("train", "val"):
        (folder / f"{name}.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))


def keys_of(folder, model, quantize, dtype, optimizer):
    # Adafactor's steps are this share of the weights, and those of fresh adapters are small.
    rate = {"sgd": "0.1", "sgd-momentum": "0.02", "adafactor": "0.3"}.get(optimizer, "3e-3")
    keys = [f"model={model}", f"model.config={folder}/config.json", "weights=random", "dataset=tokens",
            f"data_dir={folder}", "seq=16", "batch_size=16", f"lr={rate}", f"quantize={quantize}", f"dtype={dtype}",
            f"optimizer={optimizer}", "num_workers=0"]
    return keys + (["model.lora_targets=all-linear"] if model == "lora" else [])


def is_refused(model, quantize, dtype, optimizer):
    return model == "full" and quantize != "none"


class Matrix:
    def __init__(self, headroom, folder):
        self.headroom, self.folder = headroom, folder
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", HEADROOM_STATE_DIR=str(folder / "state"))

    def train(self, keys, out, *more):
        return subprocess.run([self.headroom, "train", *keys, f"out={self.folder / out}", "--gpus", "sim:1x1GiB",
                               "--json", *more], env=self.environment, capture_output=True, text=True, timeout=300,
                              check=False)

    def losses(self, out):
        lines = (self.folder / out / "metrics.jsonl").read_text().splitlines()
        return [one["loss"] for one in map(json.loads, lines) if "loss" in one]

    def check(self, name, *case):
        """What is wrong with a case; an empty text if nothing is."""
        keys = keys_of(self.folder, *case)
        whole = self.train([*keys, f"steps={STEPS}"], f"{name}-whole")
        if is_refused(*case):
            said = "expected" in whole.stderr and "try" in whole.stderr
            return "" if whole.returncode == 64 and said else f"not refused in words: {whole.stderr}"
        if whole.returncode != 0:
            return whole.stderr
        losses = self.losses(f"{name}-whole")
        begin, end = sum(losses[:5]) / 5, sum(losses[-5:]) / 5
        if not end < begin:
            return f"the loss goes from {begin} to {end}"
        half = self.train([*keys, f"steps={STEPS // 2}"], f"{name}-parts")
        rest = self.train([*keys, f"steps={STEPS}"], f"{name}-parts", "--resume")
        if half.returncode or rest.returncode:
            return half.stderr + rest.stderr
        hashes = [json.loads(one.stdout)["weights_sha256"] for one in (whole, rest)]
        return "" if hashes[0] == hashes[1] else "resumed, it ends with other weights"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("headroom")
    parser.add_argument("--all", action="store_true")
    asked = parser.parse_args()
    cases = list(itertools.product(MODEL, QUANTIZE, DTYPE, OPTIMIZER))
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_world(folder)
        matrix = Matrix(asked.headroom, folder)
        chosen = cases if asked.all else cases[::23]
        for number, case in enumerate(chosen):
            problem = matrix.check(str(number), *case)
            wrong += bool(problem)
            print(("wrong  " if problem else "ok     ") + " ".join(case), flush=True)
            if problem:
                print("       " + problem)
    print(f"{len(chosen) - wrong} of {len(chosen)}")
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
