"""Follows the QLoRA scripts of transformers and PEFT with bitsandbytes: a checkpoint is read into NF4 with double
quantisation (or int8), prepared for k-bit training, and gets LoRA on every linear layer; Trainer steps with a
paged or an 8-bit AdamW."""

import argparse
import os
import random

import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch.utils.data import Dataset
from transformers import (AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM, Trainer,
                          TrainingArguments, set_seed)


class Texts(Dataset):
    def __init__(self, rows, vocab, seed):
        rng = random.Random(seed)
        self.rows = [[rng.randrange(3, vocab) for _ in range(64)] for _ in range(rows)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def save_base(folder):
    """A checkpoint in float, as a hub has them."""
    if not os.path.exists(os.path.join(folder, "config.json")):
        config = LlamaConfig(vocab_size=256, hidden_size=128, intermediate_size=384, num_hidden_layers=3,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, use_cache=False)
        LlamaForCausalLM(config).save_pretrained(folder)


class PrintingTrainer(Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        print(f"step {self.state.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--base")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--optim", default="paged_adamw_8bit")
    parser.add_argument("--device_map", default="first")
    parser.add_argument("--lora_dropout", type=float, default=0.05)
    parser.add_argument("--bf16", type=int, default=1, help="0 is float32 throughout")
    args = parser.parse_args()
    set_seed(args.seed)
    base = args.base or os.path.join(args.out, "base")
    if not args.base:
        save_base(base)
    on_gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if args.bf16 else torch.float32
    quantization = BitsAndBytesConfig(load_in_8bit=True) if args.bits == 8 else BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(
        base, quantization_config=quantization, dtype=dtype,
        device_map=args.device_map if args.device_map == "auto" else {"": 0 if on_gpu else "cpu"})
    model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=16, lora_alpha=16, target_modules="all-linear", bias="none",
                                             lora_dropout=args.lora_dropout, task_type="CAUSAL_LM"))
    model.print_trainable_parameters()
    trainer = PrintingTrainer(model=model, train_dataset=Texts(64, 256, 0), args=TrainingArguments(
        output_dir=args.out, max_steps=args.steps, per_device_train_batch_size=4, optim=args.optim, learning_rate=2e-4,
        max_grad_norm=0.3, warmup_steps=1, lr_scheduler_type="constant", logging_steps=5, save_steps=5,
        save_total_limit=1, bf16=bool(args.bf16), gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False}, seed=args.seed, report_to="none", disable_tqdm=True,
        use_cpu=not on_gpu))
    trainer.train()
    model.save_pretrained(os.path.join(args.out, "adapter"))


if __name__ == "__main__":
    main()
