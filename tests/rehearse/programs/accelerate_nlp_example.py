"""Follows Accelerate's nlp_example.py: a BERT pair classifier, padded batches, set_seed, prepare,
accumulation by hand when the batch is too large, gather_for_metrics, and a saved state at the end of each
epoch."""

import argparse
import os
import random

import torch
from accelerate import Accelerator
from datasets import Dataset, DatasetDict
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup, set_seed

MAX_GPU_BATCH_SIZE = 16
EVAL_BATCH_SIZE = 32


def make_split(rows, seed):
    rng = random.Random(seed)
    data = {"input_ids": [], "token_type_ids": [], "attention_mask": [], "labels": []}
    for _ in range(rows):
        first = [rng.randrange(4, 200) for _ in range(rng.randint(5, 20))]
        label = rng.randint(0, 1)
        second = rng.sample(first, len(first)) if label else [rng.randrange(4, 200) for _ in first]
        data["input_ids"].append([2] + first + [3] + second + [3])
        data["token_type_ids"].append([0] * (len(first) + 2) + [1] * (len(second) + 1))
        data["attention_mask"].append([1] * (len(first) + len(second) + 3))
        data["labels"].append(label)
    return Dataset.from_dict(data)


def get_dataloaders(accelerator, batch_size):
    datasets = DatasetDict(train=make_split(256, 0), validation=make_split(72, 1))

    def collate_fn(examples):
        if accelerator.mixed_precision == "no":
            multiple = 1
        else:
            multiple = 8
        longest = max(len(e["input_ids"]) for e in examples)
        longest = (longest + multiple - 1) // multiple * multiple
        batch = {key: torch.tensor([e[key] + [0] * (longest - len(e[key])) for e in examples])
                 for key in ("input_ids", "token_type_ids", "attention_mask")}
        batch["labels"] = torch.tensor([e["labels"] for e in examples])
        return batch

    train = DataLoader(datasets["train"], shuffle=True, collate_fn=collate_fn, batch_size=batch_size,
                       drop_last=True)
    evaluation = DataLoader(datasets["validation"], shuffle=False, collate_fn=collate_fn,
                            batch_size=EVAL_BATCH_SIZE,
                            drop_last=accelerator.mixed_precision == "fp8")
    return train, evaluation


def training_function(config, args):
    accelerator = Accelerator(cpu=args.cpu, mixed_precision=args.mixed_precision)
    os.makedirs(args.out, exist_ok=True)
    batch_size = config["batch_size"]
    accumulation = 1
    if batch_size > MAX_GPU_BATCH_SIZE:
        accumulation = batch_size // MAX_GPU_BATCH_SIZE
        batch_size = MAX_GPU_BATCH_SIZE
    set_seed(config["seed"])
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, batch_size)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=200, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=64))
    model = model.to(accelerator.device)
    optimizer = AdamW(params=model.parameters(), lr=config["lr"])
    lr_scheduler = get_linear_schedule_with_warmup(optimizer=optimizer, num_warmup_steps=2,
                                                   num_training_steps=args.steps)
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler)

    updates = epoch = 0
    while updates < args.steps:
        model.train()
        summed = 0.0
        for step, batch in enumerate(train_dataloader):
            batch.update({k: v.to(accelerator.device) for k, v in batch.items()})
            outputs = model(**batch)
            loss = outputs.loss
            loss = loss / accumulation
            accelerator.backward(loss)
            summed += loss.item()
            if (step + 1) % accumulation == 0:
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
                updates += 1
                accelerator.print(f"step {updates} loss {summed!r}", flush=True)
                summed = 0.0
                if updates == args.steps:
                    break

        model.eval()
        right = total = 0
        for batch in eval_dataloader:
            batch = {k: v.to(accelerator.device) for k, v in batch.items()}
            with torch.no_grad():
                outputs = model(**batch)
            predictions = outputs.logits.argmax(dim=-1)
            predictions, references = accelerator.gather_for_metrics((predictions, batch["labels"]))
            right += (predictions == references).sum().item()
            total += len(references)
        accelerator.print(f"epoch {epoch}: accuracy {right / total:.4f}")
        accelerator.save_state(os.path.join(args.out, "state"))
        epoch += 1
    accelerator.end_training()


def main():
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--mixed_precision", default=None, choices=["no", "fp16", "bf16", "fp8"])
    parser.add_argument("--cpu", action="store_true", help="If passed, will train on the CPU.")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--batch_size", type=int, default=32)
    args = parser.parse_args()
    training_function({"lr": 5e-4, "seed": args.seed, "batch_size": args.batch_size}, args)


if __name__ == "__main__":
    main()
