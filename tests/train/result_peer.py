#!/usr/bin/env python3
"""Loads what `headroom train` writes with transformers' and peft's own loaders.

    tests/train/result_peer.py build/bin/headroom

There was no config.json and no class names, and AutoPeftModel could not open an adapter, because its
base was a file. Exits with 77 without transformers, peft or Pillow.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import peft
    import transformers
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}; scripts/python.sh makes the environment that this needs")
    sys.exit(77)

PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
COLOURS = {"blue": (20, 30, 200), "green": (20, 180, 40), "red": (210, 30, 20)}


def train(*words):
    done = subprocess.run([PROGRAM, "train", "device=cpu", "num_workers=0", "--json", *words], text=True,
                          capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def make_images(folder):
    """Eleven grey-rimmed squares of each colour, of unequal shapes, so that scaling and cropping count."""
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(11):
            image = Image.new("RGB", (60 + 7 * i, 90 - 4 * i), (90 + 5 * i, 90, 90))
            image.paste(colour, (12, 12, 44, 40 + i))
            image.save(folder / name / f"{i:02}.jpg", quality=95)


def make_base(folder):
    torch.manual_seed(0)
    config = transformers.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                    image_size=32, patch_size=8, num_labels=5)
    transformers.ViTForImageClassification(config).save_pretrained(folder)


def predicted(model, processor, file):
    with torch.no_grad():
        logits = model(**processor(Image.open(file), return_tensors="pt")).logits
    probability, label = logits.softmax(-1)[0].max(-1)
    return label.item(), probability.item()


def check_predictions(model, processor, ours):
    model.eval()
    for one in ours:
        label, probability = predicted(model, processor, one["file"])
        assert label == one["label"], (label, one)
        assert abs(probability - one["probability"]) < 2e-2, (probability, one)


def images(folder):
    make_images(folder / "images")
    make_base(folder / "base")
    data = ["dataset=images", f"data_dir={folder}/images", "batch_size=15", "epochs=8", "lr=3e-3"]
    train("model=full", f"model.config={folder}/base", *data, f"out={folder}/full")
    ours = train("--eval-only", f"out={folder}/full")["predictions"]
    assert {one["name"] for one in ours} <= set(COLOURS), ours
    model = transformers.AutoModelForImageClassification.from_pretrained(folder / "full/model")
    assert list(model.config.id2label.values()) == sorted(COLOURS), model.config.id2label
    processor = transformers.AutoImageProcessor.from_pretrained(folder / "full/model", use_fast=False)
    check_predictions(model, processor, ours)
    print("transformers opens model/, and predicts as Headroom does")

    train("model=lora", f"model.config={folder}/base", *data, f"out={folder}/lora")
    ours = train("--eval-only", f"out={folder}/lora")["predictions"]
    adapter = str(folder / "lora/adapter")
    config = transformers.AutoConfig.from_pretrained(adapter)
    model = peft.AutoPeftModel.from_pretrained(adapter, id2label=config.id2label, ignore_mismatched_sizes=True)
    assert list(model.config.id2label.values()) == sorted(COLOURS), model.config.id2label
    check_predictions(model, transformers.AutoImageProcessor.from_pretrained(adapter, use_fast=False), ours)
    print("AutoPeftModel opens adapter/ with its head, and predicts as Headroom does")


def texts(folder):
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, vocab_size=256, bos_token_id=0,
                                     eos_token_id=0)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder / "gpt")
    common = [f"model.config={folder}/gpt", "dataset=synthetic", "seq=16", "batch_size=8", "steps=6", "lr=3e-3"]
    tokens = torch.arange(16)[None]
    train("model=full", *common, f"out={folder}/text")
    full = transformers.AutoModelForCausalLM.from_pretrained(folder / "text/model").eval()
    before = transformers.AutoModelForCausalLM.from_pretrained(folder / "gpt").eval()
    assert (full(tokens).logits - before(tokens).logits).abs().max() > 1e-3, "it trained nothing"
    train("model=lora", *common, f"out={folder}/text-lora")
    lora = peft.AutoPeftModelForCausalLM.from_pretrained(str(folder / "text-lora/adapter")).eval()
    assert (lora(tokens).logits - before(tokens).logits).abs().max() > 1e-5, "the adapter does nothing"
    print("AutoModelForCausalLM and AutoPeftModelForCausalLM open model/ and adapter/")


with tempfile.TemporaryDirectory() as temporary:
    images(pathlib.Path(temporary))
    texts(pathlib.Path(temporary))
