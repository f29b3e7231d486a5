"""Judges quantised weights and states: bitsandbytes (0.50.2, on the CPU) makes the same bits of the same numbers and steps
to almost the same weights, and transformers and Headroom open each other's quantised models.

  quantised.py PROGRAM    PROGRAM: the built quantised_files

Exits with 1 if something differs.
"""
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("BITSANDBYTES_NOWELCOME", "1")
import torch
import transformers
from bitsandbytes import functional as bnb
from bitsandbytes.optim import AdamW8bit
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
PROGRAM = sys.argv[1]
FORMATS = ("nf4", "nf4-float", "int8")
TYPES = (torch.float32, torch.bfloat16, torch.float16)
failures = 0


def check(what, is_right, more=""):
    global failures
    failures += not is_right
    if not is_right or more:
        print(("ok      " if is_right else "FAILED  ") + what + (f": {more}" if more else ""))


def run(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"quantised_files {' '.join(words)}: {done.stderr}")
    return done.stdout


# ---- Codes and scales of single matrices ----

def matrices():
    """Forty shapes, odd ones among them, and numbers that are hard to round."""
    torch.manual_seed(1)
    shapes = [(1, 1), (1, 2), (1, 63), (1, 64), (1, 65), (7, 37), (3, 5), (64, 1), (65, 1), (2, 32), (5, 127), (128, 128)]
    shapes += [(1, 16384), (1, 16385), (129, 127), (257, 64), (256, 65), (31, 33), (512, 1000), (11, 4096)]
    shapes += [(rows, columns) for rows, columns in itertools.product((17, 100, 255, 300), (19, 96, 130, 513, 768))]
    assert len(shapes) == 40
    all = {}
    for i, (shape, kind) in enumerate(itertools.product(shapes, TYPES)):
        numbers = torch.randn(shape) * 10.0 ** (i % 7 - 4)
        if i % 5 == 1 and shape[0] > 2:
            numbers[1] = 0
        if i % 5 == 2:  # halves of the largest one: ties
            numbers = numbers.mul(2).round().div(2)
        name = "x".join(map(str, shape)) + "." + str(kind).removeprefix("torch.")
        all[name + ".weight"] = numbers.to(kind)
    return all


def as_4_bit(numbers, nested):
    codes, state = bnb.quantize_4bit(numbers, quant_type="nf4", compress_statistics=nested)
    return codes, state, {"": codes, **{"." + key: value for key, value in state.as_dict(packed=True).items()}}


def judge_4_bit(folder, numbers, format):
    run("pack", f"{folder}/in.safetensors", f"{folder}/ours.safetensors", format)
    ours, theirs, plain = load_file(f"{folder}/ours.safetensors"), {}, {}
    for name, matrix in numbers.items():
        codes, state, parts = as_4_bit(matrix, format == "nf4")
        theirs |= {name + end: value for end, value in parts.items()}
        # bitsandbytes takes a single byte of codes for a transposed matrix.
        plain[name] = bnb.dequantize_4bit(codes, state).reshape(matrix.shape)
        for end, value in parts.items():
            mine = ours.pop(name + end)
            if "quant_state" in end:
                read = lambda tensor: json.loads(bytes(tensor.tolist()))
                check(f"{format} {name}{end}", read(mine) == read(value), "" if read(mine) == read(value) else read(mine))
            else:
                check(f"{format} {name}{end}", torch.equal(mine, value))
    check(f"{format}: nothing else in the file", not ours)
    save_file({name: value.contiguous() for name, value in theirs.items()}, f"{folder}/theirs.safetensors")
    run("unpack", f"{folder}/theirs.safetensors", f"{folder}/unpacked.safetensors")
    unpacked = load_file(f"{folder}/unpacked.safetensors")
    for name, matrix in plain.items():
        end = "" if matrix.dtype == torch.float32 else "." + str(matrix.dtype).removeprefix("torch.")
        check(f"{format} {name} unpacked", torch.equal(unpacked[name + end], matrix))


def judge_int8(folder, numbers):
    run("pack", f"{folder}/in.safetensors", f"{folder}/ours.safetensors", "int8")
    ours = load_file(f"{folder}/ours.safetensors")
    plain = {}
    for name, matrix in numbers.items():
        codes, scales, _ = bnb.int8_vectorwise_quant(matrix)
        check(f"int8 {name}", torch.equal(ours[name], codes))
        check(f"int8 {name} SCB", torch.equal(ours[name.removesuffix("weight") + "SCB"], scales))
        plain[name] = bnb.int8_vectorwise_dequant(codes, scales)
    run("unpack", f"{folder}/ours.safetensors", f"{folder}/unpacked.safetensors")
    unpacked = load_file(f"{folder}/unpacked.safetensors")
    for name, matrix in plain.items():
        check(f"int8 {name} unpacked", torch.equal(unpacked[name], matrix))


def judge_matrices(folder):
    numbers = matrices()
    save_file(numbers, f"{folder}/in.safetensors")
    for format in ("nf4", "nf4-float"):
        judge_4_bit(folder, numbers, format)
    judge_int8(folder, numbers)
    print(f"{len(numbers)} matrices in {', '.join(FORMATS)}: codes, scales, scales of scales, and numbers again")


# ---- Steps of 8-bit AdamW ----

def stepped(weight, gradients):
    """By bitsandbytes."""
    weight = torch.nn.Parameter(weight.clone())
    optimizer = AdamW8bit([weight])
    for gradient in gradients:
        weight.grad = gradient
        optimizer.step()
    return weight.detach()


def nearest(code, numbers):
    """The index of the nearest code of each number."""
    return torch.bucketize(numbers, (code[1:] + code[:-1]) / 2)


def stepped_by_hand(weight, gradients):
    """The same arithmetic with bitsandbytes' tables and an exact search for the nearest code."""
    mean_code, square_code = bnb.create_dynamic_map(True).float(), bnb.create_dynamic_map(False).float()
    weight, blocks = weight.clone(), (weight.numel() // 256, 256)
    mean = square = torch.zeros(blocks)
    for step, gradient in enumerate(gradients, 1):
        gradient = gradient.view(blocks)
        mean, square = mean * 0.9 + gradient * 0.1, square * 0.999 + gradient * gradient * 0.001
        size = 1e-3 * (1 - 0.999 ** step) ** 0.5 / (1 - 0.9 ** step)
        weight = weight * (1 - 1e-3 * 1e-2)
        weight -= (size * mean / (square.sqrt() + 1e-8 * (1 - 0.999 ** step) ** 0.5)).view_as(weight)
        for states, code in ((mean, mean_code), (square, square_code)):
            scale = states.abs().amax(1, keepdim=True)
            states.copy_(code[nearest(code, states / scale)] * scale)
    return weight


def judge_steps(folder):
    torch.manual_seed(3)
    weight, even = torch.randn(64, 256), torch.randn(30, 64, 256)
    gradients = {"even gradients": even, "columns of other sizes": even * 10.0 ** torch.linspace(-3, 0, 256)}
    for name, each in gradients.items():
        save_file({"weight": weight, "gradients": each}, f"{folder}/in.safetensors")
        run("steps", f"{folder}/in.safetensors", f"{folder}/out.safetensors")
        update = load_file(f"{folder}/out.safetensors")["weight"] - weight
        exact = difference(update, stepped_by_hand(weight, each) - weight)
        check(f"8-bit AdamW, 30 steps, {name}, by hand", exact < 1e-3, f"{exact:.2%} of the update apart")
        # Its search on the CPU first rounds numbers to 1/65,536 of a block's largest: smaller second moments become 0.
        if each is even:
            theirs = difference(update, stepped(weight, each) - weight)
            check(f"8-bit AdamW, 30 steps, {name}", theirs < 1e-2, f"{theirs:.2%} of the update apart")


# ---- Models ----

def models():
    llama = transformers.LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=2, num_attention_heads=4,
                                     vocab_size=512)
    tied = transformers.LlamaConfig(hidden_size=128, intermediate_size=352, num_hidden_layers=2, num_attention_heads=4,
                                    num_key_value_heads=2, vocab_size=512, tie_word_embeddings=True)
    gpt2 = transformers.GPT2Config(n_embd=128, n_layer=2, n_head=4, vocab_size=512, n_positions=64)
    mixtral = transformers.MixtralConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, vocab_size=512, num_local_experts=4)
    return {"llama": llama, "llama with a tied head": tied, "gpt2 (Conv1D)": gpt2, "mixtral (stacked experts)": mixtral}


def settings(format):
    if format == "int8":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    return transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                           bnb_4bit_use_double_quant=format == "nf4", bnb_4bit_compute_dtype=torch.bfloat16)


def opened(folder, **more):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", dtype=torch.bfloat16, **more).eval()


@torch.no_grad()
def logits(model):
    return model(input_ids=torch.arange(64).view(2, 32)).logits.float()


def stored(model):
    """Codes and scales of each quantised layer."""
    return {name: value for name, value in model.state_dict().items()
            if name.endswith(".weight") and value.dtype in (torch.uint8, torch.int8) or ".SCB" in name or "absmax" in name}


def difference(ours, right):
    return ((ours.float() - right).norm() / right.norm()).item()


def judge_model(folder, name, config, format):
    torch.manual_seed(2)
    plain, ours, theirs = f"{folder}/plain", f"{folder}/ours", f"{folder}/theirs"
    transformers.AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(plain)

    model = opened(plain, quantization_config=settings(format))
    model.save_pretrained(theirs)
    run("convert", plain, ours, format)
    again = opened(ours)
    right, mine = stored(model), stored(again)
    same = right.keys() == mine.keys() and all(torch.equal(right[key], mine[key]) for key in right)
    if format == "int8":  # bitsandbytes rounds to float16 before it quantises
        same = right.keys() == mine.keys() and all(difference(mine[key], right[key].float()) < 4e-3 for key in right)
    # Headroom subtracts one mean from the scales of all experts of a layer, bitsandbytes each one's own: then
    # the logits below are what is compared.
    if not ("stacked" in name and format == "nf4"):
        check(f"{name}, {format}: transformers reads what Headroom wrote", same and len(right) > 0)

    for folder_of, who in ((ours, "Headroom"), (theirs, "transformers")):
        reference = opened(folder_of)
        if format == "int8":  # bitsandbytes rounds activations to 8 bit, too; Headroom does not
            reference = reference.dequantize()
        run("logits", folder_of, f"{folder}/logits.safetensors")
        off = difference(load_file(f"{folder}/logits.safetensors")["logits"], logits(reference))
        check(f"{name}, {format}: logits of what {who} wrote", off < 1e-2, f"{off:.1e} apart")
    for each in (plain, ours, theirs):
        shutil.rmtree(each)


with tempfile.TemporaryDirectory() as folder:
    judge_matrices(folder)
    judge_steps(folder)
    for (name, config), format in itertools.product(models().items(), FORMATS):
        judge_model(folder, name, config, format)
print("all as it should be" if failures == 0 else f"{failures} failures")
sys.exit(failures > 0)
