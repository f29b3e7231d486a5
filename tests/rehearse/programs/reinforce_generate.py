"""A reinforcement-learning loop over generated text: sampling with model.generate, a reward computed in
Python, a policy-gradient step with a baseline and a KL penalty towards a frozen reference, in the manner of
small RLHF loops."""

import argparse
import copy
import os

import torch
import torch.nn.functional as F
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, set_seed

BOS, EOS = 0, 1


def logprobs(model, sequences, mask, prompt_length):
    logits = model(input_ids=sequences, attention_mask=mask).logits[:, prompt_length - 1:-1]
    chosen = sequences[:, prompt_length:]
    return F.log_softmax(logits.float(), dim=-1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


def reward_fn(responses):
    rewards = []
    for tokens in responses.tolist():
        tokens = tokens[:tokens.index(EOS)] if EOS in tokens else tokens
        even = sum(t % 2 == 0 for t in tokens)
        rewards.append(even / max(len(tokens), 1) - 0.02 * len(tokens))
    return torch.tensor(rewards)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--group", type=int, default=2, help="answers sampled for each prompt")
    parser.add_argument("--prompt_length", type=int, default=8)
    parser.add_argument("--max_new_tokens", type=int, default=16)
    parser.add_argument("--kl_coef", type=float, default=0.05)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--greedy", action="store_true", help="no sampling on the device")
    parser.add_argument("--save_every", type=int, default=5)
    args = parser.parse_args()
    set_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    config = GPT2Config(vocab_size=64, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=BOS,
                        eos_token_id=EOS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    policy = GPT2LMHeadModel(config).to(args.device)
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr)
    sampling = {"do_sample": False} if args.greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0}
    generation = GenerationConfig(max_new_tokens=args.max_new_tokens, pad_token_id=EOS, eos_token_id=EOS,
                                  bos_token_id=BOS, **sampling)
    baseline = 0.0

    for step in range(1, args.steps + 1):
        prompts = torch.randint(2, 64, (args.batch_size // args.group, args.prompt_length))
        prompts = prompts.repeat_interleave(args.group, dim=0).to(args.device)
        policy.eval()
        with torch.no_grad():
            sequences = policy.generate(prompts, attention_mask=torch.ones_like(prompts),
                                        generation_config=generation)
        policy.train()
        responses = sequences[:, args.prompt_length:]
        ended = (responses == EOS).int().cumsum(dim=1)
        response_mask = ((ended == 0) | ((ended == 1) & (responses == EOS))).float()
        mask = torch.cat([torch.ones_like(prompts), response_mask.long()], dim=1)

        rewards = reward_fn(responses).to(args.device)
        baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
        new = logprobs(policy, sequences, mask, args.prompt_length)
        with torch.no_grad():
            old = logprobs(reference, sequences, mask, args.prompt_length)
        ratio = old - new
        kl = (ratio.exp() - ratio - 1) * response_mask
        advantage = (rewards - baseline).unsqueeze(1)
        loss = (-advantage * new * response_mask + args.kl_coef * kl).sum() / response_mask.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        print(f"step {step} loss {loss.item()!r} reward {rewards.mean().item():.4f} "
              f"kl {kl.sum(1).mean().item():.5f} length {response_mask.sum(1).mean().item():.2f}", flush=True)
        if step % args.save_every == 0:
            policy.save_pretrained(os.path.join(args.out, "policy"))
            torch.save(optimizer.state_dict(), os.path.join(args.out, "optimizer.pt"))


if __name__ == "__main__":
    main()
