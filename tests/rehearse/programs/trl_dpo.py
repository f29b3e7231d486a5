"""Follows TRL's dpo.py: preference pairs, DPOTrainer with a policy and the frozen reference that it copies
from the policy itself (or, with --use_peft, the policy without its adapter), TRL's own defaults for the
rest."""

import os
import random
from dataclasses import dataclass

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser, get_peft_config

WORDS = "please tell me the best way to cook rice walk home learn chess yes no maybe first then last".split()


@dataclass
class ScriptArguments:
    examples: int = 96
    test_examples: int = 16


class PrintingTrainer(DPOTrainer):
    summed = 0.0

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        self.summed += loss.item()
        if self.accelerator.sync_gradients:
            print(f"step {self.state.global_step + 1} loss {self.summed!r}", flush=True)
            self.summed = 0.0
        return loss


def make_dataset(rows, seed):
    rng = random.Random(seed)

    def text(least, most):
        return " ".join(rng.choices(WORDS, k=rng.randint(least, most)))

    return Dataset.from_dict({"prompt": [text(4, 12) for _ in range(rows)],
                              "chosen": [" " + text(3, 16) for _ in range(rows)],
                              "rejected": [" " + text(3, 16) for _ in range(rows)]})


def make_tokenizer():
    vocab = {w: i for i, w in enumerate(["<pad>", "<s>", "</s>", "<unk>"] + WORDS)}
    inner = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>",
                                   eos_token="</s>",
                                   pad_token="<pad>")


def main(script_args, training_args, model_args):
    set_seed(training_args.seed)
    os.makedirs(training_args.output_dir, exist_ok=True)
    tokenizer = make_tokenizer()
    config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128,
                         num_hidden_layers=2,
                         num_attention_heads=4, max_position_embeddings=256, pad_token_id=0, bos_token_id=1,
                         eos_token_id=2)
    model = LlamaForCausalLM(config)
    if model_args.dtype not in ["auto", None]:
        model.to(getattr(torch, model_args.dtype))
    evaluate = training_args.eval_strategy != "no"
    trainer = PrintingTrainer(
        model,
        args=training_args,
        train_dataset=make_dataset(script_args.examples, 0),
        eval_dataset=make_dataset(script_args.test_examples, 1) if evaluate else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    trainer.train()
    if evaluate:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    trainer.save_model(training_args.output_dir)


if __name__ == "__main__":
    parser = TrlParser((ScriptArguments, DPOConfig, ModelConfig))
    parser.add_argument("--steps", dest="max_steps", type=int)
    parser.add_argument("--out", dest="output_dir")
    parser.set_defaults(output_dir="out", max_steps=10, per_device_train_batch_size=4,
                        gradient_accumulation_steps=1,
                        learning_rate=1e-4, eval_strategy="steps", eval_steps=5, save_steps=4,
                        save_total_limit=1,
                        max_length=64, max_prompt_length=32, report_to=["none"], disable_tqdm=True)
    main(*parser.parse_args_and_config())
