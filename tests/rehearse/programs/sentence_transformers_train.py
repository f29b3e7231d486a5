"""Follows the training examples of sentence-transformers: a bi-encoder of a small BERT and mean pooling,
built from a configuration, trained on pairs with MultipleNegativesRankingLoss by SentenceTransformerTrainer,
and evaluated."""

import argparse
import os
import random

from datasets import Dataset
from sentence_transformers import (SentenceTransformer, SentenceTransformerTrainer,
                                   SentenceTransformerTrainingArguments, losses, models)
from sentence_transformers.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.training_args import BatchSamplers
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

WORDS = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]


class PrintingTrainer(SentenceTransformerTrainer):
    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        print(f"step {self.state.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss


def make_base(folder):
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + WORDS)}
    inner = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]",
                                                         pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                         special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, pad_token="[PAD]",
                                        unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")
    tokenizer.save_pretrained(folder)
    BertModel(BertConfig(vocab_size=len(vocab), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                         intermediate_size=128, max_position_embeddings=64)).save_pretrained(folder)


def make_pairs(rows, seed):
    rng = random.Random(seed)
    anchors, positives, scores = [], [], []
    for _ in range(rows):
        words = rng.choices(WORDS, k=rng.randint(5, 20))
        kept = [w if rng.random() < 0.7 else rng.choice(WORDS) for w in words]
        anchors.append(" ".join(words))
        positives.append(" ".join(kept))
        scores.append(sum(a == b for a, b in zip(words, kept)) / len(words))
    return anchors, positives, scores


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--device", default=None)
    args = parser.parse_args()
    set_seed(args.seed)
    base = os.path.join(args.out, "base")
    os.makedirs(base, exist_ok=True)
    make_base(base)
    word_embedding_model = models.Transformer(base, max_seq_length=64)
    pooling_model = models.Pooling(word_embedding_model.get_word_embedding_dimension(), pooling_mode="mean")
    model = SentenceTransformer(modules=[word_embedding_model, pooling_model], device=args.device)

    anchors, positives, _ = make_pairs(256, 0)
    train_dataset = Dataset.from_dict({"anchor": anchors, "positive": positives})
    anchors, positives, _ = make_pairs(32, 1)
    eval_dataset = Dataset.from_dict({"anchor": anchors, "positive": positives})
    evaluator = EmbeddingSimilarityEvaluator(*make_pairs(48, 2), name="dev")
    evaluator(model)

    training_args = SentenceTransformerTrainingArguments(
        output_dir=args.out,
        max_steps=args.steps,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        learning_rate=5e-4,
        warmup_ratio=0.1,
        fp16=args.fp16,
        bf16=args.bf16,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="steps",
        save_steps=5,
        save_total_limit=1,
        logging_steps=5,
        seed=args.seed,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = PrintingTrainer(model=model, args=training_args, train_dataset=train_dataset,
                              evaluator=evaluator,
                              eval_dataset=eval_dataset, loss=losses.MultipleNegativesRankingLoss(model))
    trainer.train()
    model.save_pretrained(os.path.join(args.out, "final"))


if __name__ == "__main__":
    main()
