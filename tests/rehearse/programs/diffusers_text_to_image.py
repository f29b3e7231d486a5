"""Follows diffusers' train_text_to_image.py: a frozen VAE and CLIP text encoder, a UNet that learns to
predict noise, an EMA of it, Accelerate with accumulation, save_state hooks and a limit on the checkpoints
kept."""

import argparse
import math
import os
import shutil

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel, compute_snr
from torch.utils.data import DataLoader, Dataset
from transformers import CLIPTextConfig, CLIPTextModel


def parse_args():
    parser = argparse.ArgumentParser(description="Simple example of a training script.")
    parser.add_argument("--steps", dest="max_train_steps", type=int, default=10)
    parser.add_argument("--out", dest="output_dir", default="out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resolution", type=int, default=32)
    parser.add_argument("--train_batch_size", type=int, default=2)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    parser.add_argument("--learning_rate", type=float, default=1e-4)
    parser.add_argument("--lr_scheduler", default="constant_with_warmup")
    parser.add_argument("--lr_warmup_steps", type=int, default=2)
    parser.add_argument("--snr_gamma", type=float, default=None)
    parser.add_argument("--use_ema", type=int, default=1)
    parser.add_argument("--mixed_precision", default=None, choices=["no", "fp16", "bf16"])
    parser.add_argument("--max_grad_norm", default=1.0, type=float)
    parser.add_argument("--noise_offset", type=float, default=0.0)
    parser.add_argument("--checkpointing_steps", type=int, default=4)
    parser.add_argument("--checkpoints_total_limit", type=int, default=1)
    parser.add_argument("--resume_from_checkpoint", default=None, help="a folder's name in --out, or latest")
    return parser.parse_args()


class Captioned(Dataset):
    def __init__(self, count, resolution):
        gen = torch.Generator().manual_seed(0)
        self.pixels = torch.rand(count, 3, resolution, resolution, generator=gen) * 2 - 1
        self.ids = torch.randint(3, 99, (count, 16), generator=gen)
        self.ids[:, 0], self.ids[:, -1] = 1, 99

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"pixel_values": self.pixels[index], "input_ids": self.ids[index]}


def build_models():
    text_encoder = CLIPTextModel(CLIPTextConfig(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, projection_dim=32, bos_token_id=1, eos_token_id=99))
    vae = AutoencoderKL(block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
                        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=8,
                        sample_size=32)
    unet = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8)
    return text_encoder, vae, unet


def collate_fn(examples):
    pixel_values = torch.stack([e["pixel_values"] for e in examples])
    pixel_values = pixel_values.to(memory_format=torch.contiguous_format).float()
    return {"pixel_values": pixel_values, "input_ids": torch.stack([e["input_ids"] for e in examples])}


def rotate(args):
    checkpoints = [d for d in os.listdir(args.output_dir) if d.startswith("checkpoint")]
    checkpoints = sorted(checkpoints, key=lambda x: int(x.split("-")[1]))
    if len(checkpoints) >= args.checkpoints_total_limit:
        for old in checkpoints[:len(checkpoints) - args.checkpoints_total_limit + 1]:
            shutil.rmtree(os.path.join(args.output_dir, old))


def main():
    args = parse_args()
    project = ProjectConfiguration(project_dir=args.output_dir,
                                   logging_dir=os.path.join(args.output_dir, "logs"))
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps,
                              mixed_precision=args.mixed_precision, project_config=project)
    set_seed(args.seed)
    if accelerator.is_main_process:
        os.makedirs(args.output_dir, exist_ok=True)
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear",
                                    beta_start=0.00085,
                                    beta_end=0.012)
    text_encoder, vae, unet = build_models()
    vae.requires_grad_(False)
    text_encoder.requires_grad_(False)
    unet.train()
    ema_unet = None
    if args.use_ema:
        ema_unet = EMAModel(unet.parameters(), model_cls=UNet2DConditionModel, model_config=unet.config)

    def save_model_hook(models, weights, output_dir):
        if accelerator.is_main_process:
            if args.use_ema:
                ema_unet.save_pretrained(os.path.join(output_dir, "unet_ema"))
            for model in models:
                model.save_pretrained(os.path.join(output_dir, "unet"))
                weights.pop()

    def load_model_hook(models, input_dir):
        if args.use_ema:
            loaded = EMAModel.from_pretrained(os.path.join(input_dir, "unet_ema"), UNet2DConditionModel)
            ema_unet.load_state_dict(loaded.state_dict())
            ema_unet.to(accelerator.device)
        for _ in range(len(models)):
            model = models.pop()
            loaded = UNet2DConditionModel.from_pretrained(input_dir, subfolder="unet")
            model.load_state_dict(loaded.state_dict())

    accelerator.register_save_state_pre_hook(save_model_hook)
    accelerator.register_load_state_pre_hook(load_model_hook)
    if args.gradient_checkpointing:
        unet.enable_gradient_checkpointing()
    optimizer = torch.optim.AdamW(unet.parameters(), lr=args.learning_rate, weight_decay=1e-2)
    train_dataloader = DataLoader(Captioned(48, args.resolution), shuffle=True, collate_fn=collate_fn,
                                  batch_size=args.train_batch_size)
    lr_scheduler = get_scheduler(args.lr_scheduler, optimizer=optimizer,
                                 num_warmup_steps=args.lr_warmup_steps * accelerator.num_processes,
                                 num_training_steps=args.max_train_steps * accelerator.num_processes)
    unet, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(unet, optimizer, train_dataloader,
                                                                          lr_scheduler)
    if args.use_ema:
        ema_unet.to(accelerator.device)
    weight_dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(accelerator.mixed_precision,
                                                                       torch.float32)
    text_encoder.to(accelerator.device, dtype=weight_dtype)
    vae.to(accelerator.device, dtype=weight_dtype)

    global_step, train_loss = 0, 0.0
    if args.resume_from_checkpoint:
        path = args.resume_from_checkpoint
        if path == "latest":
            folders = [d for d in os.listdir(args.output_dir) if d.startswith("checkpoint")]
            path = max(folders, key=lambda x: int(x.split("-")[1]))
        accelerator.load_state(os.path.join(args.output_dir, path))
        global_step = int(path.split("-")[1])
    updates_per_epoch = math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
    for _ in range(math.ceil(args.max_train_steps / updates_per_epoch)):
        for batch in train_dataloader:
            with accelerator.accumulate(unet):
                latents = vae.encode(batch["pixel_values"].to(weight_dtype)).latent_dist.sample()
                latents = latents * vae.config.scaling_factor
                noise = torch.randn_like(latents)
                if args.noise_offset:
                    noise += args.noise_offset * torch.randn((*latents.shape[:2], 1, 1),
                                                             device=latents.device)
                bsz = latents.shape[0]
                timesteps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (bsz,),
                                          device=latents.device).long()
                noisy_latents = noise_scheduler.add_noise(latents, noise, timesteps)
                encoder_hidden_states = text_encoder(batch["input_ids"], return_dict=False)[0]
                model_pred = unet(noisy_latents, timesteps, encoder_hidden_states, return_dict=False)[0]
                if args.snr_gamma is None:
                    loss = F.mse_loss(model_pred.float(), noise.float(), reduction="mean")
                else:
                    snr = compute_snr(noise_scheduler, timesteps)
                    weights = torch.stack([snr, args.snr_gamma * torch.ones_like(timesteps)], dim=1)
                    weights = weights.min(dim=1)[0] / snr
                    loss = F.mse_loss(model_pred.float(), noise.float(), reduction="none")
                    loss = (loss.mean(dim=list(range(1, len(loss.shape)))) * weights).mean()
                avg_loss = accelerator.gather(loss.repeat(args.train_batch_size)).mean()
                train_loss += avg_loss.item() / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(unet.parameters(), args.max_grad_norm)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                if args.use_ema:
                    ema_unet.step(unet.parameters())
                global_step += 1
                accelerator.print(f"step {global_step} loss {train_loss!r}", flush=True)
                train_loss = 0.0
                if global_step % args.checkpointing_steps == 0 and accelerator.is_main_process:
                    rotate(args)
                    accelerator.save_state(os.path.join(args.output_dir, f"checkpoint-{global_step}"))
            if global_step >= args.max_train_steps:
                break
        if global_step >= args.max_train_steps:
            break
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        unet = accelerator.unwrap_model(unet)
        if args.use_ema:
            ema_unet.copy_to(unet.parameters())
        unet.save_pretrained(os.path.join(args.output_dir, "unet"))
    accelerator.end_training()


if __name__ == "__main__":
    main()
