"""Follows PEFT's sequence-classification example: a base model wrapped by get_peft_model with LoRA, a plain
loop with a linear schedule, evaluation after each epoch, adapters saved with save_pretrained and loaded again
at the end."""

import argparse
import os
import random

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import (RobertaConfig, RobertaForSequenceClassification, get_linear_schedule_with_warmup,
                          set_seed)


def make_rows(count, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        label = rng.randint(0, 1)
        words = [rng.randint(5, 54) + 50 * label * rng.randint(0, 1) for _ in range(rng.randint(8, 40))]
        rows.append({"input_ids": [0] + words + [2], "labels": label})
    return rows


def collate_fn(examples, pad=1):
    longest = max(len(e["input_ids"]) for e in examples)
    ids = torch.full((len(examples), longest), pad)
    mask = torch.zeros_like(ids)
    for row, e in enumerate(examples):
        ids[row, :len(e["input_ids"])] = torch.tensor(e["input_ids"])
        mask[row, :len(e["input_ids"])] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([e["labels"] for e in examples])}


def build_base(seed):
    set_seed(seed)
    config = RobertaConfig(vocab_size=128, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                           intermediate_size=128, max_position_embeddings=66, type_vocab_size=1, num_labels=2)
    return RobertaForSequenceClassification(config)


def evaluate(model, loader, device):
    model.eval()
    right = total = 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.no_grad():
            outputs = model(**batch)
        right += (outputs.logits.argmax(dim=-1) == batch["labels"]).sum().item()
        total += len(batch["labels"])
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--r", type=int, default=8)
    parser.add_argument("--use_dora", action="store_true")
    parser.add_argument("--lr", type=float, default=3e-3)
    args = parser.parse_args()
    device = args.device
    if device is None:
        device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"

    train_loader = DataLoader(make_rows(48, 0), shuffle=True, collate_fn=collate_fn,
                              batch_size=args.batch_size)
    eval_loader = DataLoader(make_rows(24, 1), shuffle=False, collate_fn=collate_fn,
                             batch_size=args.batch_size)
    peft_config = LoraConfig(task_type=TaskType.SEQ_CLS, inference_mode=False, r=args.r, lora_alpha=16,
                             lora_dropout=0.1, target_modules=["query", "value"], use_dora=args.use_dora)
    model = get_peft_model(build_base(args.seed), peft_config)
    model.print_trainable_parameters()
    optimizer = AdamW(params=model.parameters(), lr=args.lr)
    lr_scheduler = get_linear_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=0.06 * args.steps,
                                                   num_training_steps=args.steps)
    model.to(device)
    step = epoch = 0
    folder = os.path.join(args.out, "adapter")
    while step < args.steps:
        model.train()
        for batch in train_loader:
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            step += 1
            print(f"step {step} loss {loss.item()!r}", flush=True)
            if step == args.steps:
                break
        print(f"epoch {epoch}: accuracy {evaluate(model, eval_loader, device):.4f}")
        model.save_pretrained(folder)
        epoch += 1

    # The adapter on a fresh base, merged into its weights.
    inference_model = PeftModel.from_pretrained(build_base(args.seed), folder).to(device)
    print(f"reloaded: accuracy {evaluate(inference_model, eval_loader, device):.4f}")
    merged = inference_model.merge_and_unload()
    print(f"merged: accuracy {evaluate(merged, eval_loader, device):.4f}")


if __name__ == "__main__":
    main()
