"""Follows diffusers' train_text_to_image_lora.py: frozen VAE, text encoder and UNet, LoRA layers added to the
UNet's attention with add_adapter, only these trained and saved, in float32 even under mixed precision, then a
few steps of sampling for validation."""

import argparse
import os
import shutil

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import cast_training_params
from diffusers.utils import convert_state_dict_to_diffusers
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import save_image
from transformers import CLIPTextConfig, CLIPTextModel


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", dest="max_train_steps", type=int, default=10)
    parser.add_argument("--out", dest="output_dir", default="out")
    parser.add_argument("--seed", type=int, default=1337)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--resolution", type=int, default=32)
    parser.add_argument("--train_batch_size", type=int, default=2)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--mixed_precision", default=None, choices=["no", "fp16", "bf16"])
    parser.add_argument("--max_grad_norm", default=1.0, type=float)
    parser.add_argument("--validation_steps", type=int, default=5)
    parser.add_argument("--checkpointing_steps", type=int, default=3)
    parser.add_argument("--checkpoints_total_limit", type=int, default=1)
    return parser.parse_args()


def build_models():
    text_encoder = CLIPTextModel(CLIPTextConfig(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, bos_token_id=1, eos_token_id=99))
    vae = AutoencoderKL(block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2,
                        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=8,
                        sample_size=32)
    unet = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8)
    return text_encoder, vae, unet


@torch.no_grad()
def log_validation(args, accelerator, unet, vae, text_encoder, scheduler, ids, dtype, step):
    generator = torch.Generator(device=accelerator.device).manual_seed(args.seed)
    side = args.resolution // 2
    latents = torch.randn(1, 4, side, side, generator=generator, device=accelerator.device, dtype=dtype)
    hidden = text_encoder(ids[:1].to(accelerator.device))[0]
    scheduler.set_timesteps(3, device=accelerator.device)
    with accelerator.autocast():
        for t in scheduler.timesteps:
            latents = scheduler.step(unet(latents, t, hidden).sample, t, latents,
                                     generator=generator).prev_sample
        image = vae.decode((latents / vae.config.scaling_factor).to(dtype)).sample
    save_image((image.float().cpu() / 2 + 0.5).clamp(0, 1),
               os.path.join(args.output_dir, f"validation_{step}.png"))
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def main():
    args = parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps,
                              mixed_precision=args.mixed_precision)
    set_seed(args.seed)
    os.makedirs(args.output_dir, exist_ok=True)
    noise_scheduler = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear")
    text_encoder, vae, unet = build_models()
    for model in (unet, vae, text_encoder):
        model.requires_grad_(False)
    weight_dtype = torch.float32
    if accelerator.mixed_precision == "fp16":
        weight_dtype = torch.float16
    elif accelerator.mixed_precision == "bf16":
        weight_dtype = torch.bfloat16
    unet_lora_config = LoraConfig(r=args.rank, lora_alpha=args.rank, init_lora_weights="gaussian",
                                  target_modules=["to_k", "to_q", "to_v", "to_out.0"])
    for model in (unet, vae, text_encoder):
        model.to(accelerator.device, dtype=weight_dtype)
    unet.add_adapter(unet_lora_config)
    if args.mixed_precision == "fp16":
        cast_training_params(unet, dtype=torch.float32)
    lora_layers = list(filter(lambda p: p.requires_grad, unet.parameters()))
    print(f"{sum(p.numel() for p in lora_layers):,} parameters to train")
    optimizer = torch.optim.AdamW(lora_layers, lr=args.learning_rate, weight_decay=1e-2)

    gen = torch.Generator().manual_seed(0)
    pixels = torch.rand(32, 3, args.resolution, args.resolution, generator=gen) * 2 - 1
    ids = torch.randint(3, 99, (32, 16), generator=gen)
    ids[:, -1] = 99
    train_dataloader = DataLoader(TensorDataset(pixels, ids), shuffle=True, batch_size=args.train_batch_size)
    lr_scheduler = get_scheduler("cosine", optimizer=optimizer, num_warmup_steps=0,
                                 num_training_steps=args.max_train_steps)
    unet, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(unet, optimizer, train_dataloader,
                                                                          lr_scheduler)

    def lora_state():
        inner = accelerator.unwrap_model(unet)
        return convert_state_dict_to_diffusers(get_peft_model_state_dict(inner))

    global_step, train_loss = 0, 0.0
    while global_step < args.max_train_steps:
        unet.train()
        for pixel_values, input_ids in train_dataloader:
            with accelerator.accumulate(unet):
                latents = vae.encode(pixel_values.to(dtype=weight_dtype)).latent_dist.sample()
                latents = latents * vae.config.scaling_factor
                noise = torch.randn_like(latents)
                timesteps = torch.randint(0, noise_scheduler.config.num_train_timesteps, (latents.shape[0],),
                                          device=latents.device).long()
                noisy_latents = noise_scheduler.add_noise(latents, noise, timesteps)
                encoder_hidden_states = text_encoder(input_ids, return_dict=False)[0]
                model_pred = unet(noisy_latents, timesteps, encoder_hidden_states, return_dict=False)[0]
                loss = F.mse_loss(model_pred.float(), noise.float(), reduction="mean")
                train_loss += loss.item() / args.gradient_accumulation_steps
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(lora_layers, args.max_grad_norm)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                global_step += 1
                accelerator.print(f"step {global_step} loss {train_loss!r}", flush=True)
                train_loss = 0.0
                if global_step % args.checkpointing_steps == 0:
                    found = sorted((d for d in os.listdir(args.output_dir) if d.startswith("checkpoint")),
                                   key=lambda name: int(name.split("-")[1]))
                    for old in found[:max(0, len(found) - args.checkpoints_total_limit + 1)]:
                        shutil.rmtree(os.path.join(args.output_dir, old))
                    folder = os.path.join(args.output_dir, f"checkpoint-{global_step}")
                    accelerator.save_state(folder)
                    StableDiffusionPipeline.save_lora_weights(save_directory=folder,
                                                              unet_lora_layers=lora_state(),
                                                              safe_serialization=True)
                if global_step % args.validation_steps == 0:
                    log_validation(args, accelerator, unet, vae, text_encoder, noise_scheduler, ids,
                                   weight_dtype,
                                   global_step)
            if global_step >= args.max_train_steps:
                break
    accelerator.wait_for_everyone()
    unet = unet.to(torch.float32)
    StableDiffusionPipeline.save_lora_weights(save_directory=args.output_dir, unet_lora_layers=lora_state(),
                                              safe_serialization=True)
    accelerator.end_training()


if __name__ == "__main__":
    main()
