"""Follows TRL's sft.py: TrlParser with SFTConfig and ModelConfig, a conversational dataset with a chat
template, SFTTrainer on a small Qwen2 (optionally with LoRA or packing), and TRL's own defaults for the
rest."""

import os
import random
from dataclasses import dataclass

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config

WORDS = "what is how many who where the of in a year city river king answer one two three red blue".split()
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", "user", "assistant"]
TEMPLATE = ("{% for message in messages %}<|im_start|> {{ message['role'] }} "
            "{{ message['content'] }} <|im_end|> {% endfor %}"
            "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}")


@dataclass
class ScriptArguments:
    examples: int = 96
    test_examples: int = 16


class PrintingTrainer(SFTTrainer):
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

    def talk():
        return [{"role": role, "content": " ".join(rng.choices(WORDS, k=rng.randint(3, 20)))}
                for role in ("user", "assistant")]

    return Dataset.from_dict({"messages": [talk() for _ in range(rows)]})


def make_tokenizer():
    vocab = {w: i for i, w in enumerate(SPECIAL + WORDS)}
    inner = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<|im_end|>",
                                        pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def main(script_args, training_args, model_args):
    set_seed(training_args.seed)
    os.makedirs(training_args.output_dir, exist_ok=True)
    tokenizer = make_tokenizer()
    dtype = model_args.dtype if model_args.dtype in ["auto", None] else getattr(torch, model_args.dtype)
    config = Qwen2Config(vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128,
                         num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                         attn_implementation=model_args.attn_implementation, pad_token_id=0, eos_token_id=2)
    model = Qwen2ForCausalLM(config)
    if isinstance(dtype, torch.dtype):
        model.to(dtype)
    evaluate = training_args.eval_strategy != "no"
    trainer = PrintingTrainer(
        model=model,
        args=training_args,
        train_dataset=make_dataset(script_args.examples, 0),
        eval_dataset=make_dataset(script_args.test_examples, 1) if evaluate else None,
        processing_class=tokenizer,
        peft_config=get_peft_config(model_args),
    )
    trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint)
    trainer.save_model(training_args.output_dir)
    trainer.accelerator.print(f"Model saved to {training_args.output_dir}.")


def make_parser():
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    parser.add_argument("--steps", dest="max_steps", type=int)
    parser.add_argument("--out", dest="output_dir")
    parser.set_defaults(output_dir="out", max_steps=10, per_device_train_batch_size=4,
                        gradient_accumulation_steps=2,
                        learning_rate=1e-3, eval_strategy="steps", eval_steps=5, save_steps=4,
                        save_total_limit=1,
                        max_length=64, report_to=["none"], disable_tqdm=True)
    return parser


if __name__ == "__main__":
    main(*make_parser().parse_args_and_config())
