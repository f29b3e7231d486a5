import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        ids = torch.arange(128) + index
        return {"input_ids": ids, "labels": ids}


net = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=5000, n_positions=128))
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=16, optim="adamw_torch", report_to=[],
                              save_strategy="no", max_steps=9)
Trainer(net, arguments, train_dataset=Texts()).train()
