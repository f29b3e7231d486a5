"""`headroom train` against transformers: the same tiny models, trained by both on the CPU.

  training.py [--steps 200] [--models gpt2,llama,gpt_neox,bert-decoder]

Each model is a case of transformers_numbers_cases.py over tokens. transformers makes it and saves
it as the hub has it (config.json, model.safetensors); both programs start from these weights and
train all of them in float32, without dropout, with AdamW, weight decay and clipping. The file of
tokens is one effective batch, so that each step is an epoch and its order does not matter.
transformers takes it at once; Headroom in parts (gradient_accumulation_steps), whose counts of
labels differ (a loss mask). The losses of every step, in metrics.jsonl, may differ by 1e-4.

Learning rate and data are such that training is smooth. Where it is not, rounding alone grows to
differences of 0.01 and more: when transformers takes the rows in another order, or random tokens
are learnt by heart at 1e-3. Here it stays near 2e-6, and forgetting the weight decay makes 6e-4.

Images and masked models are left out: `headroom train` changes the former and hides tokens of the
latter at random.

Exit: 0 equal; 1 different, with the first step that is; 77 without transformers or Headroom."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers

    from transformers_numbers import EAGER_ONLY, model_of
    from transformers_numbers_cases import CASES
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADROOM = ROOT / os.environ.get("HEADROOM_BUILD", "build") / "bin/headroom"
MODELS = {case["name"]: case for case in CASES
          if case["task"] == "causal-lm"}
PART, PARTS, LENGTH = 3, 4, 16
NEAR = 1e-4
OPTIMIZER = {"lr": 2e-4, "weight_decay": 0.01}
MAX_NORM = 1.0


def data():
    """Rows of tokens that go round in steps of 1, 2 or 3, and whether each token is to be learnt:
    fewer in later rows."""
    row, place = torch.arange(PART * PARTS)[:, None], torch.arange(LENGTH)
    return 3 + (5 * row + (1 + row % 3) * place) % 8, place >= row


def losses_of_transformers(model, tokens, learnt, steps):
    optimizer = torch.optim.AdamW(model.parameters(), **OPTIMIZER)
    labels = tokens.masked_fill(~learnt, -100)
    model.train()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses_of_headroom(model, tokens, learnt, steps, attention, folder):
    model.save_pretrained(folder / "model")
    tokens.numpy().astype("<u2").tofile(folder / "train.bin")
    learnt.numpy().astype("u1").tofile(folder / "train.mask.bin")
    settings = {"model": "full", "model.config": folder / "model", "weights": folder / "model",
                "attention": attention, "dataset": "tokens", "data_dir": folder, "seq": LENGTH,
                "batch_size": PART, "gradient_accumulation_steps": PARTS, "steps": steps,
                "optimizer": "adamw", **OPTIMIZER, "max_grad_norm": MAX_NORM,
                "device": "cpu", "out": folder / "run"}
    # One thread: more would wait for each other. No plan that an earlier run found good.
    own = {"OMP_THREAD_LIMIT": "1", "HEADROOM_STATE_DIR": str(folder / "state")}
    words = [f"{key}={value}" for key, value in settings.items()]
    done = subprocess.run([HEADROOM, "train", *words], env=os.environ | own, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"headroom train ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    lines = (folder / "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def is_equal(case, steps):
    attention = "eager" if case["config"]["model_type"] in EAGER_ONLY else "sdpa"
    torch.manual_seed(0)
    model = model_of(case, attention)
    with tempfile.TemporaryDirectory() as folder:
        ours = losses_of_headroom(model, *data(), steps, attention, pathlib.Path(folder))
    theirs = losses_of_transformers(model, *data(), steps)
    if len(ours) != steps:
        print(f"{case['name']}: {len(ours)} losses of {steps} steps")
        return False
    for step, (one, other) in enumerate(zip(ours, theirs), 1):
        if not abs(one - other) <= NEAR:
            print(f"{case['name']}: loss {one:.7f} in step {step}, {other:.7f} in transformers")
            return False
    most = max(abs(one - other) for one, other in zip(ours, theirs))
    print(f"{case['name']}: loss {ours[0]:.4f} to {ours[-1]:.4f} in {steps} steps, "
          f"at most {most:.1e} from transformers {transformers.__version__}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--models", default="gpt2,llama,gpt_neox,bert-decoder", help="of " + ", ".join(MODELS))
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = options.models.split(",")
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        parser.error(f"expected models of {', '.join(MODELS)}; received {', '.join(unknown)}")
    if not HEADROOM.exists():
        print(f"skipped: {HEADROOM} is not built")
        sys.exit(77)
    wrong = [name for name in names if not is_equal(MODELS[name], options.steps)]
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
