"""Follows the usual Whisper fine-tuning script: log-mel features of synthetic tones, a padding collator that
masks labels, Seq2SeqTrainer with predict_with_generate, a word error rate, gradient checkpointing and
rotating saves."""

import argparse
import random
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset
from transformers import (Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperConfig, WhisperFeatureExtractor,
                          WhisperForConditionalGeneration, set_seed)

PAD, START, END = 0, 1, 2
NOTES = list(range(3, 13))


def make_dataset(rows, seed, extractor, seconds):
    rng = random.Random(seed)
    features, labels = [], []
    rate = extractor.sampling_rate
    for _ in range(rows):
        notes = [rng.choice(NOTES) for _ in range(rng.randint(1, 4))]
        t = np.arange(rate * seconds // len(notes)) / rate
        wave = np.concatenate([np.sin(2 * np.pi * 110 * n * t) for n in notes]).astype(np.float32)
        features.append(extractor(wave, sampling_rate=rate).input_features[0])
        labels.append([START] + notes + [END])
    return Dataset.from_dict({"input_features": features, "labels": labels})


@dataclass
class DataCollatorSpeechSeq2SeqWithPadding:
    extractor: object
    decoder_start_token_id: int

    def __call__(self, examples):
        features = [{"input_features": e["input_features"]} for e in examples]
        batch = self.extractor.pad(features, return_tensors="pt")
        longest = max(len(e["labels"]) for e in examples)
        labels = torch.full((len(examples), longest), -100)
        for row, e in enumerate(examples):
            labels[row, :len(e["labels"])] = torch.tensor(e["labels"])
        if (labels[:, 0] == self.decoder_start_token_id).all().cpu().item():
            labels = labels[:, 1:]
        batch["labels"] = labels
        return batch


class PrintingTrainer(Seq2SeqTrainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        print(f"step {self.state.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


def compute_metrics(pred):
    errors = words = 0
    label_ids = np.where(pred.label_ids == -100, PAD, pred.label_ids)
    for found, wanted in zip(pred.predictions, label_ids):
        found = [t for t in found if t not in (PAD, START, END, -100)]
        wanted = [t for t in wanted if t not in (PAD, START, END)]
        errors += distance(found, wanted)
        words += len(wanted)
    return {"wer": 100 * errors / words}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--gradient_checkpointing", type=int, default=1)
    args = parser.parse_args()
    set_seed(args.seed)
    seconds = 2
    extractor = WhisperFeatureExtractor(feature_size=32, chunk_length=seconds)
    config = WhisperConfig(
        vocab_size=16, num_mel_bins=32, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128,
        max_source_positions=50 * seconds,
        max_target_positions=32, pad_token_id=PAD, bos_token_id=START, eos_token_id=END,
        decoder_start_token_id=START, suppress_tokens=None, begin_suppress_tokens=None)
    model = WhisperForConditionalGeneration(config)
    model.generation_config.forced_decoder_ids = None
    model.generation_config.max_length = 16
    model.config.use_cache = not args.gradient_checkpointing
    training_args = Seq2SeqTrainingArguments(
        output_dir=args.out,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=1,
        learning_rate=1e-3,
        warmup_steps=2,
        max_steps=args.steps,
        gradient_checkpointing=bool(args.gradient_checkpointing),
        gradient_checkpointing_kwargs={"use_reentrant": False},
        fp16=args.fp16,
        eval_strategy="steps",
        predict_with_generate=True,
        generation_max_length=12,
        save_steps=5,
        eval_steps=5,
        save_total_limit=1,
        logging_steps=5,
        report_to="none",
        load_best_model_at_end=True,
        metric_for_best_model="wer",
        greater_is_better=False,
        remove_unused_columns=False,
        label_names=["labels"],
        seed=args.seed,
        disable_tqdm=True,
    )
    trainer = PrintingTrainer(
        args=training_args, model=model, train_dataset=make_dataset(24, 0, extractor, seconds),
        eval_dataset=make_dataset(4, 1, extractor, seconds), compute_metrics=compute_metrics,
        data_collator=DataCollatorSpeechSeq2SeqWithPadding(extractor, config.decoder_start_token_id),
        processing_class=extractor)
    trainer.train()
    trainer.save_model()
    extractor.save_pretrained(args.out)


if __name__ == "__main__":
    main()
