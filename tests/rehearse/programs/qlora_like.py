"""Follows the QLoRA recipe without quantized weights: a frozen bfloat16 base prepared as for k-bit training
(norms in float32, inputs that require gradients, gradient checkpointing), LoRA on every linear layer, Trainer
with AdamW."""

import argparse
import os
import random

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

IGNORE_INDEX = -100


class Instructions(Dataset):
    def __init__(self, rows, vocab, seed):
        rng = random.Random(seed)
        self.rows = [([rng.randrange(3, vocab) for _ in range(rng.randint(4, 24))],
                      [rng.randrange(3, vocab) for _ in range(rng.randint(8, 40))]) for _ in range(rows)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        source, target = self.rows[i]
        return {"input_ids": [1] + source + target + [2], "source_len": len(source) + 1}


def collate(instances):
    longest = max(len(i["input_ids"]) for i in instances)
    ids = torch.zeros(len(instances), longest, dtype=torch.long)
    labels = torch.full_like(ids, IGNORE_INDEX)
    for row, instance in enumerate(instances):
        tokens = torch.tensor(instance["input_ids"])
        ids[row, :len(tokens)] = tokens
        labels[row, instance["source_len"]:len(tokens)] = tokens[instance["source_len"]:]
    return {"input_ids": ids, "labels": labels, "attention_mask": ids.ne(0)}


def prepare_model(model, gradient_checkpointing):
    for param in model.parameters():
        param.requires_grad = False
    for name, module in model.named_modules():
        if "norm" in name:
            module.to(torch.float32)
    if gradient_checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def find_all_linear_names(model):
    names = {name.split(".")[-1] for name, module in model.named_modules()
             if isinstance(module, torch.nn.Linear)}
    names.discard("lm_head")
    return sorted(names)


class SavePeftModelCallback(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        kwargs["model"].save_pretrained(os.path.join(args.output_dir, f"checkpoint-{state.global_step}",
                                                     "adapter"))
        return control


class PrintingTrainer(Trainer):
    summed = 0.0

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.summed += loss.item()
        if self.accelerator.sync_gradients:
            print(f"step {self.state.global_step + 1} loss {self.summed!r}", flush=True)
            self.summed = 0.0
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--lora_r", type=int, default=16)
    parser.add_argument("--bf16", type=int, default=1,
                        help="a bfloat16 base and autocast; 0 is float32 throughout")
    parser.add_argument("--gradient_checkpointing", type=int, default=1)
    args = parser.parse_args()
    set_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=3,
                         pad_token_id=0,
                         num_attention_heads=4, max_position_embeddings=128, use_cache=False)
    model = LlamaForCausalLM(config)
    if args.bf16:
        model.to(torch.bfloat16)
    model = prepare_model(model, args.gradient_checkpointing)
    lora = LoraConfig(r=args.lora_r, lora_alpha=16, target_modules=find_all_linear_names(model),
                      lora_dropout=0.05,
                      bias="none", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer) and args.bf16:
            module.to(torch.bfloat16)
        if "norm" in name:
            module.to(torch.float32)
    model.print_trainable_parameters()
    training_args = TrainingArguments(
        output_dir=args.out, max_steps=args.steps, per_device_train_batch_size=args.batch_size,
        report_to="none",
        gradient_accumulation_steps=args.gradient_accumulation_steps, optim="adamw_torch", learning_rate=2e-4,
        max_grad_norm=0.3, warmup_steps=1, lr_scheduler_type="constant",
        logging_steps=1,
        save_steps=4, save_total_limit=1, remove_unused_columns=False, bf16=bool(args.bf16), seed=args.seed,
        eval_strategy="steps", eval_steps=5, disable_tqdm=True, use_cpu=not torch.cuda.is_available())
    trainer = PrintingTrainer(model=model, args=training_args, data_collator=collate,
                              train_dataset=Instructions(64, 256, 0), eval_dataset=Instructions(8, 256, 1),
                              callbacks=[SavePeftModelCallback()])
    result = trainer.train()
    trainer.log_metrics("train", result.metrics)
    trainer.save_state()


if __name__ == "__main__":
    main()
