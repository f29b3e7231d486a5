"""Trains a small Mamba of the transformers library from scratch with a plain loop, a linear schedule and
periodic save_pretrained; without the CUDA-only kernels the model takes its sequential slow path."""

import argparse
import os
import shutil

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import MambaConfig, MambaForCausalLM, get_linear_schedule_with_warmup, set_seed


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--length", type=int, default=24)
    parser.add_argument("--hidden_size", type=int, default=32)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--save_every", type=int, default=4)
    parser.add_argument("--init_from", default=None, help="a saved folder to continue")
    return parser.parse_args()


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    losses = [model(x.to(device), labels=x.to(device)).loss.item() for (x,) in loader]
    model.train()
    return sum(losses) / len(losses)


def main():
    args = parse_args()
    set_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    tokens = torch.randint(0, 100, (72, args.length), generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(TensorDataset(tokens[:64]), batch_size=args.batch_size, shuffle=True)
    eval_loader = DataLoader(TensorDataset(tokens[64:]), batch_size=args.batch_size)

    if args.init_from:
        model = MambaForCausalLM.from_pretrained(args.init_from)
    else:
        config = MambaConfig(vocab_size=100, hidden_size=args.hidden_size, state_size=8, conv_kernel=4,
                             expand=2,
                             num_hidden_layers=args.layers, use_cache=False, pad_token_id=0, bos_token_id=0,
                             eos_token_id=0)
        model = MambaForCausalLM(config)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=0.01)
    scheduler = get_linear_schedule_with_warmup(optimizer, 2, args.steps)

    step, previous = 0, None
    while step < args.steps:
        for (x,) in train_loader:
            x = x.to(device)
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.bf16):
                loss = model(x, labels=x).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            print(f"step {step} loss {loss.item()!r} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
            if step % args.save_every == 0 or step == args.steps:
                print(f"eval loss {evaluate(model, eval_loader, device):.4f}")
                folder = os.path.join(args.out, f"checkpoint-{step}")
                model.save_pretrained(folder)
                torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                            "step": step},
                           os.path.join(folder, "training.pt"))
                if previous:
                    shutil.rmtree(previous)
                previous = folder
            if step == args.steps:
                break


if __name__ == "__main__":
    main()
