"""Follows transformers' run_glue.py: sentence pairs from CSV files, a small BERT classifier, padded batches,
metrics at every evaluation, the best checkpoint loaded at the end, TensorBoard logging, and prediction."""

import os
import random
from dataclasses import dataclass, field

import numpy as np
from datasets import load_dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (BertConfig, BertForSequenceClassification, DataCollatorWithPadding, EvalPrediction,
                          HfArgumentParser, PreTrainedTokenizerFast, Trainer, TrainingArguments, set_seed)

WORDS = "the a cat dog bird tree house runs sits sings big small red blue green and under over near".split()


@dataclass
class DataTrainingArguments:
    max_seq_length: int = field(default=48)
    pad_to_max_length: bool = field(default=False)
    fp16_padding: bool = field(default=False, metadata={"help": "pad to a multiple of 8"})


class PrintingTrainer(Trainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        if self.accelerator.sync_gradients:
            print(f"step {self.state.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss


def make_files(folder):
    rng = random.Random(0)
    files = {}
    for split, rows in (("train", 128), ("validation", 40), ("test", 24)):
        files[split] = os.path.join(folder, split + ".csv")
        with open(files[split], "w") as out:
            out.write("sentence1,sentence2,label\n")
            for _ in range(rows):
                first = rng.choices(WORDS, k=rng.randint(4, 18))
                label = rng.randint(0, 1)
                second = rng.sample(first, len(first)) if label else rng.choices(WORDS, k=rng.randint(4, 18))
                out.write(f"{' '.join(first)},{' '.join(second)},{label}\n")
    return files


def make_tokenizer():
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + WORDS)}
    inner = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])])
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]",
                                   cls_token="[CLS]",
                                   sep_token="[SEP]")


def main():
    parser = HfArgumentParser((DataTrainingArguments, TrainingArguments))
    parser.add_argument("--steps", dest="max_steps", type=int)
    parser.add_argument("--out", dest="output_dir")
    parser.set_defaults(output_dir="out", max_steps=10, per_device_train_batch_size=8,
                        per_device_eval_batch_size=8,
                        eval_strategy="steps", eval_steps=3, save_steps=3, save_total_limit=1,
                        logging_steps=2,
                        load_best_model_at_end=True, metric_for_best_model="accuracy",
                        report_to=["tensorboard"],
                        learning_rate=5e-4, disable_tqdm=True)
    data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    os.makedirs(training_args.output_dir, exist_ok=True)
    raw_datasets = load_dataset("csv", data_files=make_files(training_args.output_dir),
                                cache_dir=os.path.join(training_args.output_dir, "cache"))
    label_list = sorted(raw_datasets["train"].unique("label"))
    tokenizer = make_tokenizer()
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=128, max_position_embeddings=64, num_labels=len(label_list))
    model = BertForSequenceClassification(config)
    padding = "max_length" if data_args.pad_to_max_length else False

    def preprocess_function(examples):
        return tokenizer(examples["sentence1"], examples["sentence2"], padding=padding,
                         max_length=data_args.max_seq_length, truncation=True)

    with training_args.main_process_first(desc="dataset map pre-processing"):
        raw_datasets = raw_datasets.map(preprocess_function, batched=True)

    def compute_metrics(p: EvalPrediction):
        preds = p.predictions[0] if isinstance(p.predictions, tuple) else p.predictions
        preds = np.argmax(preds, axis=1)
        right = ((preds == 1) & (p.label_ids == 1)).sum()
        f1 = 2 * right / max((preds == 1).sum() + (p.label_ids == 1).sum(), 1)
        return {"accuracy": float((preds == p.label_ids).mean()), "f1": float(f1)}

    multiple = 8 if training_args.fp16 or data_args.fp16_padding else None
    trainer = PrintingTrainer(
        model=model, args=training_args, train_dataset=raw_datasets["train"],
        eval_dataset=raw_datasets["validation"], compute_metrics=compute_metrics, processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple))
    train_result = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model()
    trainer.log_metrics("train", train_result.metrics)
    trainer.save_state()
    trainer.log_metrics("eval", trainer.evaluate(eval_dataset=raw_datasets["validation"]))
    predictions = trainer.predict(raw_datasets["test"].remove_columns("label")).predictions.argmax(axis=1)
    with open(os.path.join(training_args.output_dir, "predict_results.txt"), "w") as writer:
        writer.write("index\tprediction\n")
        for index, item in enumerate(predictions):
            writer.write(f"{index}\t{label_list[item]}\n")


if __name__ == "__main__":
    main()
