"""Follows transformers' run_clm.py: HfArgumentParser, a text file read by datasets, group_texts, a GPT-2
trained from scratch by Trainer with evaluation, perplexity, rotating checkpoints and resumption of the last
checkpoint."""

import logging
import math
import os
import random
from dataclasses import dataclass, field
from itertools import chain
from typing import Optional

import torch
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (AutoConfig, AutoModelForCausalLM, HfArgumentParser, PreTrainedTokenizerFast,
                          Trainer,
                          TrainingArguments, default_data_collator, set_seed)
from transformers.trainer_utils import get_last_checkpoint

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    model_type: str = field(default="gpt2")
    hidden_size: int = field(default=64)
    layers: int = field(default=2)
    dtype: Optional[str] = field(default=None, metadata={"help": "float32, bfloat16 or float16"})


@dataclass
class DataTrainingArguments:
    train_file: Optional[str] = field(default=None,
                                      metadata={"help": "a text file; a small one is made without it"})
    block_size: int = field(default=64)
    validation_split_percentage: int = field(default=10)


class PrintingTrainer(Trainer):
    summed = 0.0

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.summed += loss.item()
        if self.accelerator.sync_gradients:
            print(f"step {self.state.global_step + 1} loss {self.summed!r}", flush=True)
            self.summed = 0.0
        return loss


def make_text(path):
    rng = random.Random(0)
    words = ["".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 7))) for _ in range(120)]
    with open(path, "w") as text:
        for _ in range(600):
            text.write(" ".join(rng.choices(words, k=rng.randint(5, 20))) + "\n")


def main():
    parser = HfArgumentParser((ModelArguments, DataTrainingArguments, TrainingArguments))
    parser.add_argument("--steps", dest="max_steps", type=int)
    parser.add_argument("--out", dest="output_dir")
    parser.set_defaults(output_dir="out", max_steps=10, per_device_train_batch_size=4,
                        per_device_eval_batch_size=4,
                        save_steps=4, save_total_limit=1, eval_strategy="steps", eval_steps=5,
                        logging_steps=5,
                        warmup_steps=2, report_to=["none"], disable_tqdm=True, learning_rate=1e-3)
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    logging.basicConfig(level=logging.WARNING)
    set_seed(training_args.seed)
    os.makedirs(training_args.output_dir, exist_ok=True)
    logger.warning(f"device: {training_args.device}, n_gpu: {training_args.n_gpu}")
    last_checkpoint = get_last_checkpoint(training_args.output_dir)

    train_file = data_args.train_file
    if train_file is None:
        train_file = os.path.join(training_args.output_dir, "corpus.txt")
        make_text(train_file)
    cache_dir = os.path.join(training_args.output_dir, "cache")
    percent = data_args.validation_split_percentage
    raw_datasets = load_dataset("text", data_files={"train": train_file}, cache_dir=cache_dir)
    raw_datasets["validation"] = load_dataset("text", data_files=train_file, split=f"train[:{percent}%]",
                                              cache_dir=cache_dir)
    raw_datasets["train"] = load_dataset("text", data_files=train_file, split=f"train[{percent}%:]",
                                         cache_dir=cache_dir)

    inner = Tokenizer(models.WordLevel(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.train_from_iterator(raw_datasets["train"]["text"],
                              trainers.WordLevelTrainer(vocab_size=256,
                                                        special_tokens=["<unk>", "<|endoftext|>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<|endoftext|>",
                                        bos_token="<|endoftext|>")
    config = AutoConfig.for_model(model_args.model_type, vocab_size=256, n_embd=model_args.hidden_size,
                                  n_head=4,
                                  n_layer=model_args.layers, n_positions=256, bos_token_id=1, eos_token_id=1)
    dtype = getattr(torch, model_args.dtype) if model_args.dtype else None
    model = AutoModelForCausalLM.from_config(config, **({"torch_dtype": dtype} if dtype else {}))
    n_params = sum(p.numel() for p in model.parameters())
    logger.warning(f"Training new model from scratch - {n_params / 1e6:.2f}M params")
    if len(tokenizer) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(tokenizer))

    def tokenize_function(examples):
        return tokenizer(examples["text"], return_token_type_ids=False)

    def group_texts(examples):
        concatenated = {k: list(chain(*examples[k])) for k in examples.keys()}
        total = len(concatenated["input_ids"]) // data_args.block_size * data_args.block_size
        result = {k: [t[i:i + data_args.block_size] for i in range(0, total, data_args.block_size)]
                  for k, t in concatenated.items()}
        result["labels"] = result["input_ids"].copy()
        return result

    with training_args.main_process_first(desc="dataset map tokenization"):
        tokenized = raw_datasets.map(tokenize_function, batched=True, remove_columns=["text"])
        lm_datasets = tokenized.map(group_texts, batched=True)

    def preprocess_logits_for_metrics(logits, labels):
        return (logits[0] if isinstance(logits, tuple) else logits).argmax(dim=-1)

    def compute_metrics(eval_preds):
        preds, labels = eval_preds
        return {"accuracy": float((preds[:, :-1] == labels[:, 1:]).mean())}

    trainer = PrintingTrainer(
        model=model, args=training_args, train_dataset=lm_datasets["train"],
        eval_dataset=lm_datasets["validation"],
        processing_class=tokenizer, data_collator=default_data_collator, compute_metrics=compute_metrics,
        preprocess_logits_for_metrics=preprocess_logits_for_metrics)
    checkpoint = training_args.resume_from_checkpoint or last_checkpoint
    train_result = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    trainer.log_metrics("train", train_result.metrics)
    trainer.save_metrics("train", train_result.metrics)
    trainer.save_state()
    metrics = trainer.evaluate()
    metrics["perplexity"] = math.exp(metrics["eval_loss"])
    trainer.log_metrics("eval", metrics)
    trainer.save_metrics("eval", metrics)


if __name__ == "__main__":
    main()
