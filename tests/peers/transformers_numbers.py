"""What transformers' models compute: logits, losses and gradients of tiny models.

  transformers_numbers.py [--write figures.json | --check figures.json] [--only NAME ...]

Each case of transformers_numbers_cases.py is a model of a few thousand weights. Weights, tokens,
pixels and labels come from a formula (`values` below) that transformers_numbers_test.cpp has as
well, so that neither needs the other's files or random numbers. Stored are

  results      of each case, by attention and mask: a sample of the logits, their root mean square,
               the loss, and for some the norm of each parameter's gradient, in the order of names;
               the last of each case is in bfloat16
  files        hashes of what save_pretrained writes for some cases, in one file and in small ones
  initialised  of each model type: mean, root mean square and kurtosis of each parameter, in the
               order of names, over many models as `_init_weights` makes them

--check fails where a figure differs from the stored one by more than rounding does."""
import argparse
import json
import math
import pathlib
import tempfile
import warnings

import numpy
import torch
import transformers

from differences import differences
from transformers_numbers_cases import CASES, INITIALISED

ROWS, LENGTH, TARGETS = 2, 7, 5
SAMPLES = 32  # logits of a result that are stored
SHARD = 9000  # bytes of each of several files
MODELS = 48  # of a type, for the figures of `initialised`
TASKS = {
    "causal-lm": transformers.AutoModelForCausalLM,
    "masked-lm": transformers.AutoModelForMaskedLM,
    "sequence-classification": transformers.AutoModelForSequenceClassification,
    "image-classification": transformers.AutoModelForImageClassification,
    "seq2seq-lm": transformers.AutoModelForSeq2SeqLM,
}
# These have one way to attend.
EAGER_ONLY = ("gpt_neo", "t5", "resnet", "convnext")


def hash_of(content):
    """FNV-1a."""
    word = 0xCBF29CE484222325
    for byte in content:
        word = (word ^ byte) * 0x100000001B3 % 2**64
    return word


def bits(name, count):
    """splitmix64, from the hash of the name on."""
    start = hash_of(name.encode())
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(start) + numpy.arange(1, count + 1, dtype=numpy.uint64) * numpy.uint64(
            0x9E3779B97F4A7C15)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return z ^ (z >> numpy.uint64(31))


def values(name, sizes):
    """From -1 to 1."""
    count = math.prod(sizes)
    numbers = (bits(name, count) >> numpy.uint64(11)).astype(numpy.float64) / 2.0**52 - 1.0
    return torch.from_numpy(numbers).reshape(sizes)


def integers(name, sizes, low, high):
    numbers = bits(name, math.prod(sizes)) % numpy.uint64(high - low)
    return torch.from_numpy(numbers.astype(numpy.int64) + low).reshape(sizes)


def set_weights(model):
    tensors = dict(model.named_parameters())
    tensors |= {name: buffer for name, buffer in model.named_buffers() if "running_" in name}
    with torch.no_grad():
        for name, tensor in tensors.items():
            numbers = values(name, tensor.shape)
            around_1 = tensor.dim() == 1 and name.endswith(("weight", "running_var"))
            tensor.copy_(1 + 0.3 * numbers if around_1 else 0.4 * numbers)


def mask_of(kind):
    if kind == "none":
        return None
    mask = torch.ones(ROWS, LENGTH, dtype=torch.long)
    if kind == "left":
        mask[1, :3] = 0
    if kind == "right":
        mask[1, -2:] = 0
    return mask


def labels_of(case, config, mask):
    task = case["task"]
    if task in ("sequence-classification", "image-classification"):
        if case.get("labels") == "real":
            return values("labels", (ROWS,) if config.num_labels == 1 else (ROWS, config.num_labels))
        return integers("labels", (ROWS,), 0, config.num_labels)
    length = TARGETS if task == "seq2seq-lm" else LENGTH
    labels = integers("labels", (ROWS, length), 3, config.vocab_size)
    labels[0, 3] = -100
    if mask is not None and task != "seq2seq-lm":
        labels = labels.masked_fill(mask == 0, -100)
    return labels


def inputs_of(case, config, kind, dtype):
    mask = mask_of(kind)
    labels = labels_of(case, config, mask)
    if labels.is_floating_point():
        labels = labels.to(dtype)
    if case["task"] == "image-classification":
        side = case["image"]
        sizes = (ROWS, config.num_channels, side, side)
        return {"pixel_values": values("pixels", sizes).to(dtype), "labels": labels}
    tokens = integers("tokens", (ROWS, LENGTH), 3, config.vocab_size)
    if mask is None:
        return {"input_ids": tokens, "labels": labels}
    tokens = tokens.masked_fill(mask == 0, config.pad_token_id or 0)
    return {"input_ids": tokens, "attention_mask": mask, "labels": labels}


def config_of(case):
    config = transformers.AutoConfig.for_model(**case["config"])
    config.architectures = []  # of several classes for a task the first
    return config


def model_of(case, attention, dtype=torch.float32):
    config = config_of(case)
    return TASKS[case["task"]].from_config(config, attn_implementation=attention, dtype=dtype)


def rounded(number):
    number = float(number)
    return float(f"{number:.8g}") if math.isfinite(number) else None


def sample(logits):
    flat = logits.detach().double().flatten()
    return [rounded(x) for x in flat[:: -(-flat.numel() // SAMPLES)]]


def result_of(case, attention, kind, with_gradients, dtype=torch.float32):
    model = model_of(case, attention, dtype)
    set_weights(model)
    inputs = inputs_of(case, model.config, kind, dtype)
    model.eval()
    with torch.no_grad():
        output = model(**inputs)
    logits = output.logits.double()
    result = {"attention": attention, "mask": kind, "dtype": str(dtype).split(".")[1],
              "logits": sample(logits), "rms": rounded(logits.pow(2).mean().sqrt()),
              "loss": rounded(output.loss)}
    if with_gradients:
        model.train()
        model(**inputs).loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
        result["gradients"] = [rounded(0 if gradients[name] is None else gradients[name].float().norm())
                               for name in sorted(gradients)]
    return result


def results_of(case):
    kinds = ("none", "ones", "left", "right")
    if case["task"] == "image-classification":
        kinds = ("none",)
    kinds = case.get("masks", kinds)
    ways = ("eager",) if case["config"]["model_type"] in EAGER_ONLY else ("sdpa", "eager")
    with_gradients = {("sdpa", kinds[-1]), ("eager", kinds[0]), (ways[0], kinds[-1])}
    results = [result_of(case, way, kind, (way, kind) in with_gradients)
               for way in ways for kind in kinds]
    return results + [result_of(case, ways[0], kinds[-1], True, torch.bfloat16)]


def moments(tensors):
    x = torch.stack(tensors).double().flatten()
    mean, rms = x.mean(), x.pow(2).mean().sqrt()
    deviation = x - mean
    variance = deviation.pow(2).mean()
    kurtosis = deviation.pow(4).mean() / variance.pow(2) if variance > 1e-14 else torch.tensor(0.0)
    return [rounded(mean), rounded(rms), rounded(kurtosis)]


def initialised(case):
    torch.manual_seed(0)
    model = model_of(case, "eager")
    tensors = {name: [] for name, _ in model.named_parameters()}
    for _ in range(MODELS):
        for module in model.modules():
            module._is_hf_initialized = False
        model.init_weights()
        for name, parameter in model.named_parameters():
            tensors[name].append(parameter.detach().clone())
    return [moments(tensors[name]) for name in sorted(tensors)]


def files_of(case):
    model = model_of(case, "eager")
    set_weights(model)
    hashes = {}
    # Mixtral's experts have their weights in another order with us: other files, as good.
    sizes = ("5GB",) if case["name"] == "mixtral" else ("5GB", SHARD)
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, max_shard_size=size)
            for file in sorted(pathlib.Path(folder).glob("model*")):
                hashes[file.name] = f"{hash_of(file.read_bytes()):016x}"
    return hashes


def measured(case):
    return {"name": case["name"], "task": case["task"], "config": case["config"],
            "image": case.get("image", 0), "labels": case.get("labels", "whole"),
            "results": results_of(case)}


def lines_of(figures):
    """One result a line, so that a change shows where it is."""
    def line(x):
        return json.dumps(x, separators=(",", ":"))
    cases = []
    for case in figures["cases"]:
        head = {key: value for key, value in case.items() if key != "results"}
        cases.append(line(head)[:-1] + ',"results":[\n' +
                     ",\n".join(line(result) for result in case["results"]) + "]}")
    files = [line(name) + ":" + line(value) for name, value in figures["files"].items()]
    types = [line(name) + ":" + line(value) for name, value in figures["initialised"].items()]
    return ('{"versions":' + line(figures["versions"]) + ',\n"models":' + str(figures["models"]) +
            ',\n"cases":[\n' + ",\n".join(cases) + '],\n"shard":' + str(figures["shard"]) +
            ',\n"files":{\n' + ",\n".join(files) + '},\n"initialised":{\n' + ",\n".join(types) +
            "}}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--check", type=pathlib.Path)
    parser.add_argument("--only", nargs="+")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)

    def wanted(name):
        return not options.only or name in options.only

    figures = {
        "versions": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "models": MODELS,
        "cases": [measured(case) for case in CASES if wanted(case["name"])],
        "shard": SHARD,
        "files": {case["name"]: files_of(case) for case in CASES
                  if case["name"] in INITIALISED and wanted(case["name"])},
        "initialised": {case["name"]: initialised(case) for case in CASES
                        if case["name"] in INITIALISED and wanted(case["name"])},
    }
    if options.write:
        options.write.write_text(lines_of(figures))
    if options.check:
        stored = json.loads(options.check.read_text())
        if options.only:
            stored["cases"] = [case for case in stored["cases"] if wanted(case["name"])]
            for key in ("files", "initialised"):
                stored[key] = {k: v for k, v in stored[key].items() if wanted(k)}
        found = differences(json.loads(json.dumps(figures)), stored)
        if found:
            raise SystemExit("transformers_numbers.py: other than stored:\n" + "\n".join(found[:20]))
        print(f"transformers_numbers.py: {len(figures['cases'])} cases as stored")
    if not options.write and not options.check:
        print(lines_of(figures), end="")


if __name__ == "__main__":
    main()
