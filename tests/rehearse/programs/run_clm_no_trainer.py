"""Follows transformers' run_clm_no_trainer.py: a Llama from a configuration, Accelerate for devices,
accumulation and mixed precision, grouped AdamW, a schedule, save_state folders of which only the last stays,
and a final evaluation."""

import argparse
import math
import os
import random
import shutil
from itertools import chain

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader
from transformers import (LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, SchedulerType,
                          default_data_collator, get_scheduler)


def parse_args():
    parser = argparse.ArgumentParser(description="Train a causal language model")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps in all")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--per_device_train_batch_size", type=int, default=4)
    parser.add_argument("--per_device_eval_batch_size", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=0.01)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--lr_scheduler_type", type=SchedulerType, default="cosine")
    parser.add_argument("--num_warmup_steps", type=int, default=2)
    parser.add_argument("--block_size", type=int, default=64)
    parser.add_argument("--checkpointing_steps", type=int, default=4)
    parser.add_argument("--resume_from_checkpoint", default=None)
    parser.add_argument("--mixed_precision", choices=["no", "fp16", "bf16"], default="no")
    return parser.parse_args()


def make_datasets():
    rng = random.Random(0)
    words = [chr(97 + i) + chr(97 + j) for i in range(10) for j in range(10)]
    lines = [" ".join(rng.choices(words, k=rng.randint(5, 20))) for _ in range(500)]
    return DatasetDict(train=Dataset.from_dict({"text": lines[:450]}),
                       validation=Dataset.from_dict({"text": lines[450:]}))


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps,
                              mixed_precision=args.mixed_precision)
    print(accelerator.state)
    set_seed(args.seed)
    if accelerator.is_main_process:
        os.makedirs(args.out, exist_ok=True)
    accelerator.wait_for_everyone()

    raw_datasets = make_datasets()
    inner = Tokenizer(models.WordLevel(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.train_from_iterator(raw_datasets["train"]["text"],
                              trainers.WordLevelTrainer(special_tokens=["<unk>", "<s>", "</s>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>",
                                        eos_token="</s>")
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=160,
                         num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
    model = LlamaForCausalLM(config)

    def group_texts(examples):
        concatenated = {k: list(chain(*examples[k])) for k in examples.keys()}
        total = len(concatenated["input_ids"]) // args.block_size * args.block_size
        result = {k: [t[i:i + args.block_size] for i in range(0, total, args.block_size)]
                  for k, t in concatenated.items()}
        result["labels"] = result["input_ids"].copy()
        return result

    with accelerator.main_process_first():
        tokenized = raw_datasets.map(lambda e: tokenizer(e["text"], return_token_type_ids=False),
                                     batched=True,
                                     remove_columns=["text"])
        lm_datasets = tokenized.map(group_texts, batched=True)
    train_dataloader = DataLoader(lm_datasets["train"], shuffle=True, collate_fn=default_data_collator,
                                  batch_size=args.per_device_train_batch_size)
    eval_dataloader = DataLoader(lm_datasets["validation"], collate_fn=default_data_collator,
                                 batch_size=args.per_device_eval_batch_size)

    no_decay = ["bias", "layer_norm.weight"]
    grouped = [
        {"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
         "weight_decay": args.weight_decay},
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)],
         "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(grouped, lr=args.learning_rate)
    lr_scheduler = get_scheduler(name=args.lr_scheduler_type, optimizer=optimizer,
                                 num_warmup_steps=args.num_warmup_steps * accelerator.num_processes,
                                 num_training_steps=args.steps * accelerator.num_processes)
    model, optimizer, train_dataloader, eval_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader, lr_scheduler)

    completed_steps = 0
    if args.resume_from_checkpoint:
        accelerator.load_state(args.resume_from_checkpoint)
        completed_steps = int(os.path.basename(args.resume_from_checkpoint).split("_")[-1])

    def evaluate():
        model.eval()
        losses = []
        for batch in eval_dataloader:
            with torch.no_grad():
                outputs = model(**batch)
            loss = outputs.loss.repeat(args.per_device_eval_batch_size)
            losses.append(accelerator.gather_for_metrics(loss))
        model.train()
        return math.exp(torch.mean(torch.cat(losses)))

    model.train()
    summed, last_folder = 0.0, None
    while completed_steps < args.steps:
        for batch in train_dataloader:
            with accelerator.accumulate(model):
                outputs = model(**batch)
                loss = outputs.loss
                summed += loss.detach().float().item() / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                completed_steps += 1
                accelerator.print(f"step {completed_steps} loss {summed!r}", flush=True)
                summed = 0.0
                if completed_steps % args.checkpointing_steps == 0:
                    folder = os.path.join(args.out, f"step_{completed_steps}")
                    accelerator.save_state(folder)
                    if last_folder is not None and accelerator.is_main_process:
                        shutil.rmtree(last_folder)
                    last_folder = folder
            if completed_steps >= args.steps:
                break
        accelerator.print(f"perplexity {evaluate():.4f}")
    accelerator.wait_for_everyone()
    unwrapped_model = accelerator.unwrap_model(model)
    unwrapped_model.save_pretrained(args.out, is_main_process=accelerator.is_main_process,
                                    save_function=accelerator.save)
    if accelerator.is_main_process:
        tokenizer.save_pretrained(args.out)
    accelerator.end_training()


if __name__ == "__main__":
    main()
