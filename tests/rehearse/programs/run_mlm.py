"""Follows transformers' run_mlm.py: line-by-line or grouped text, random masks drawn by the data collator, a
small RoBERTa trained from scratch by Trainer, evaluation of the loss at the end."""

import math
import os
import random
from dataclasses import dataclass, field
from itertools import chain

from datasets import Dataset, DatasetDict
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (DataCollatorForLanguageModeling, HfArgumentParser, PreTrainedTokenizerFast,
                          RobertaConfig,
                          RobertaForMaskedLM, Trainer, TrainingArguments, set_seed)

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


@dataclass
class DataTrainingArguments:
    max_seq_length: int = field(default=64)
    mlm_probability: float = field(default=0.15)
    line_by_line: bool = field(default=False)
    pad_to_max_length: bool = field(default=False)


class PrintingTrainer(Trainer):
    summed = 0.0

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.summed += loss.item()
        if self.accelerator.sync_gradients:
            print(f"step {self.state.global_step + 1} loss {self.summed!r}", flush=True)
            self.summed = 0.0
        return loss


def make_texts():
    rng = random.Random(1)
    words = ["".join(rng.choice("klmnopqrst") for _ in range(rng.randint(2, 6))) for _ in range(150)]
    return [" ".join(rng.choices(words, k=rng.randint(4, 24))) for _ in range(500)]


def main():
    parser = HfArgumentParser((DataTrainingArguments, TrainingArguments))
    parser.add_argument("--steps", dest="max_steps", type=int)
    parser.add_argument("--out", dest="output_dir")
    parser.set_defaults(output_dir="out", max_steps=10, per_device_train_batch_size=4,
                        per_device_eval_batch_size=8,
                        gradient_accumulation_steps=2, save_steps=3, save_total_limit=1, logging_steps=5,
                        report_to=["none"], learning_rate=1e-3, weight_decay=0.01, lr_scheduler_type="cosine",
                        warmup_ratio=0.1, disable_tqdm=True)
    data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    os.makedirs(training_args.output_dir, exist_ok=True)
    texts = make_texts()
    raw = DatasetDict(train=Dataset.from_dict({"text": texts[:440]}),
                      validation=Dataset.from_dict({"text": texts[440:]}))
    inner = Tokenizer(models.WordLevel(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.train_from_iterator(texts[:440], trainers.WordLevelTrainer(special_tokens=SPECIAL))
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>",
                                        cls_token="<s>",
                                        sep_token="</s>", unk_token="<unk>", pad_token="<pad>",
                                        mask_token="<mask>")
    config = RobertaConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2,
                           num_attention_heads=4,
                           intermediate_size=128, max_position_embeddings=data_args.max_seq_length + 2,
                           type_vocab_size=1)
    model = RobertaForMaskedLM(config)
    limit = data_args.max_seq_length

    if data_args.line_by_line:
        padding = "max_length" if data_args.pad_to_max_length else False

        def tokenize_function(examples):
            return tokenizer(examples["text"], padding=padding, truncation=True, max_length=limit,
                             return_special_tokens_mask=True, return_token_type_ids=False)

        tokenized = raw.map(tokenize_function, batched=True, remove_columns=["text"])
    else:
        def tokenize_function(examples):
            return tokenizer(examples["text"], return_special_tokens_mask=True, return_token_type_ids=False)

        def group_texts(examples):
            concatenated = {k: list(chain(*examples[k])) for k in examples.keys()}
            total = len(concatenated["input_ids"]) // limit * limit
            return {k: [t[i:i + limit] for i in range(0, total, limit)] for k, t in concatenated.items()}

        tokenized = raw.map(tokenize_function, batched=True, remove_columns=["text"]).map(group_texts,
                                                                                          batched=True)

    collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm_probability=data_args.mlm_probability,
                                               pad_to_multiple_of=8 if data_args.line_by_line else None)
    trainer = PrintingTrainer(model=model, args=training_args, train_dataset=tokenized["train"],
                              eval_dataset=tokenized["validation"], processing_class=tokenizer,
                              data_collator=collator)
    result = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()
    metrics = trainer.evaluate()
    metrics["perplexity"] = math.exp(metrics["eval_loss"])
    trainer.log_metrics("eval", metrics)


if __name__ == "__main__":
    main()
