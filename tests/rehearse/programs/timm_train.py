"""Follows timm's train.py: create_model, create_loader with its prefetcher, create_optimizer_v2, mixup,
native AMP with a loss scaler, ModelEmaV3, create_scheduler_v2, and a CheckpointSaver that keeps the best
few."""

import argparse
import logging
import os
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from timm import utils
from timm.data import FastCollateMixup, Mixup, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from timm.models import create_model, resume_checkpoint
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import NativeScaler

_logger = logging.getLogger("train")
parser = argparse.ArgumentParser(description="Image training")
parser.add_argument("--model", default="resnet10t")
parser.add_argument("--num-classes", type=int, default=10)
parser.add_argument("--model-kwargs", nargs="*", default={}, action=utils.ParseKwargs)
parser.add_argument("--img-size", type=int, default=64)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--steps", type=int, default=10, help="updates in all")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--opt", default="adamw")
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--weight-decay", type=float, default=0.05)
parser.add_argument("--sched", default="cosine")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--warmup-epochs", type=int, default=1)
parser.add_argument("--clip-grad", type=float, default=1.0)
parser.add_argument("--grad-accum-steps", type=int, default=1)
parser.add_argument("--mixup", type=float, default=0.2)
parser.add_argument("--cutmix", type=float, default=1.0)
parser.add_argument("--smoothing", type=float, default=0.1)
parser.add_argument("--drop", type=float, default=0.1)
parser.add_argument("--amp", action="store_true", default=False)
parser.add_argument("--amp-dtype", default="float16")
parser.add_argument("--model-ema", type=int, default=1)
parser.add_argument("--model-ema-decay", type=float, default=0.99)
parser.add_argument("--channels-last", action="store_true", default=False)
parser.add_argument("--torchcompile", nargs="?", default=None, const="inductor")
parser.add_argument("--no-prefetcher", action="store_true", default=False)
parser.add_argument("--checkpoint-hist", type=int, default=2)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--resume", default="")
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--out", default="out")


class Pictures(torch.utils.data.Dataset):
    def __init__(self, count, classes, seed):
        rng = np.random.default_rng(seed)
        self.pixels = rng.integers(0, 256, (count, 80, 80, 3), dtype=np.uint8)
        self.labels = rng.integers(0, classes, count).tolist()
        self.transform = self.target_transform = None

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.pixels[index])), self.labels[index]


def train_one_epoch(epoch, state, args, model, loader, optimizer, loss_fn, device, lr_scheduler, amp_autocast,
                    loss_scaler, model_ema, mixup_fn):
    second_order = hasattr(optimizer, "is_second_order") and optimizer.is_second_order
    losses_m = utils.AverageMeter()
    model.train()
    optimizer.zero_grad()
    summed = 0.0
    for batch_idx, (input, target) in enumerate(loader):
        need_update = (batch_idx + 1) % args.grad_accum_steps == 0
        if args.no_prefetcher:
            input, target = input.to(device), target.to(device)
            if mixup_fn is not None:
                input, target = mixup_fn(input, target)
        if args.channels_last:
            input = input.contiguous(memory_format=torch.channels_last)
        with amp_autocast():
            loss = loss_fn(model(input), target) / args.grad_accum_steps
        if loss_scaler is not None:
            loss_scaler(loss, optimizer, clip_grad=args.clip_grad, clip_mode="norm",
                        create_graph=second_order,
                        parameters=model.parameters(), need_update=need_update)
        else:
            loss.backward(create_graph=second_order)
            if need_update:
                utils.dispatch_clip_grad(model.parameters(), value=args.clip_grad, mode="norm")
                optimizer.step()
        summed += loss.item()
        if not need_update:
            continue
        losses_m.update(summed, input.size(0))
        optimizer.zero_grad()
        state["updates"] += 1
        if model_ema is not None:
            model_ema.update(model, step=state["updates"])
        if device.type == "cuda":
            torch.cuda.synchronize()
        print(f"step {state['updates']} loss {summed!r}", flush=True)
        summed = 0.0
        lr_scheduler.step_update(num_updates=state["updates"], metric=losses_m.avg)
        if state["updates"] >= args.steps:
            break
    return {"loss": losses_m.avg}


@torch.no_grad()
def validate(args, model, loader, loss_fn, device, amp_autocast):
    losses_m, top1_m = utils.AverageMeter(), utils.AverageMeter()
    model.eval()
    for input, target in loader:
        if args.no_prefetcher:
            input, target = input.to(device), target.to(device)
        with amp_autocast():
            output = model(input)
            loss = loss_fn(output, target)
        acc1, _ = utils.accuracy(output, target, topk=(1, 5))
        losses_m.update(loss.item(), input.size(0))
        top1_m.update(acc1.item(), input.size(0))
    return {"loss": losses_m.avg, "top1": top1_m.avg}


def main():
    utils.setup_default_logging()
    args = parser.parse_args()
    device = utils.init_distributed_device(args)
    utils.random_seed(args.seed, args.rank)
    model = create_model(args.model, pretrained=False, num_classes=args.num_classes, drop_rate=args.drop,
                         **args.model_kwargs)
    data_config = resolve_data_config(vars(args), model=model)
    data_config["input_size"] = (3, args.img_size, args.img_size)
    model.to(device=device)
    if args.channels_last:
        model.to(memory_format=torch.channels_last)
    optimizer = create_optimizer_v2(model, opt=args.opt, lr=args.lr, weight_decay=args.weight_decay)
    amp_autocast, loss_scaler = nullcontext, None
    if args.amp:
        amp_dtype = getattr(torch, args.amp_dtype)
        amp_autocast = partial(torch.autocast, device_type=device.type, dtype=amp_dtype)
        if device.type == "cuda" and amp_dtype == torch.float16:
            loss_scaler = NativeScaler(device=device.type)
    start_epoch = None
    if args.resume:
        start_epoch = resume_checkpoint(model, args.resume, optimizer=optimizer, loss_scaler=loss_scaler)
    model_ema = utils.ModelEmaV3(model, decay=args.model_ema_decay) if args.model_ema else None
    if args.torchcompile:
        model = torch.compile(model, backend=args.torchcompile)

    mixup_args = dict(mixup_alpha=args.mixup, cutmix_alpha=args.cutmix, label_smoothing=args.smoothing,
                      num_classes=args.num_classes)
    mixup_active = args.mixup > 0 or args.cutmix > 0
    mixup_fn = collate_fn = None
    if mixup_active:
        if args.no_prefetcher:
            mixup_fn = Mixup(**mixup_args)
        else:
            collate_fn = FastCollateMixup(**mixup_args)
    common = dict(input_size=data_config["input_size"], batch_size=args.batch_size, mean=data_config["mean"],
                  std=data_config["std"], interpolation=data_config["interpolation"],
                  num_workers=args.workers,
                  use_prefetcher=not args.no_prefetcher, device=device, persistent_workers=False)
    loader_train = create_loader(Pictures(32, args.num_classes, 0), is_training=True, re_prob=0.25,
                                 auto_augment="rand-m9-mstd0.5-inc1", collate_fn=collate_fn, **common)
    loader_eval = create_loader(Pictures(16, args.num_classes, 1), is_training=False, **common)
    if mixup_active:
        train_loss_fn = SoftTargetCrossEntropy().to(device)
    else:
        train_loss_fn = LabelSmoothingCrossEntropy(smoothing=args.smoothing).to(device)
    validate_loss_fn = nn.CrossEntropyLoss().to(device)
    output_dir = utils.get_outdir(args.out, "train")
    saver = utils.CheckpointSaver(model=model, optimizer=optimizer, args=args, model_ema=model_ema,
                                  amp_scaler=loss_scaler, checkpoint_dir=output_dir, recovery_dir=output_dir,
                                  decreasing=False, max_history=args.checkpoint_hist)
    lr_scheduler, num_epochs = create_scheduler_v2(
        optimizer, sched=args.sched, num_epochs=args.epochs, warmup_epochs=args.warmup_epochs,
        updates_per_epoch=len(loader_train) // args.grad_accum_steps)
    epoch, state = start_epoch or 0, {"updates": 0}
    while state["updates"] < args.steps:
        train_metrics = train_one_epoch(epoch, state, args, model, loader_train, optimizer, train_loss_fn,
                                        device,
                                        lr_scheduler, amp_autocast, loss_scaler, model_ema, mixup_fn)
        tested = model_ema if model_ema is not None else model
        eval_metrics = validate(args, tested, loader_eval, validate_loss_fn, device, amp_autocast)
        _logger.info(f"epoch {epoch} top1 {eval_metrics['top1']:.2f}")
        utils.update_summary(epoch, train_metrics, eval_metrics,
                             filename=os.path.join(output_dir, "summary.csv"),
                             write_header=epoch == 0)
        saver.save_checkpoint(epoch, metric=eval_metrics["top1"])
        lr_scheduler.step(epoch + 1, eval_metrics["top1"])
        epoch += 1


if __name__ == "__main__":
    main()
