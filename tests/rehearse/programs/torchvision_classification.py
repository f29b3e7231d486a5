"""Follows torchvision's references/classification/train.py: a ResNet without weights, label smoothing, an amp
scaler, an averaged (EMA) model, warm-up and cosine schedule, checkpoint files with everything to resume
from."""

import argparse
import datetime
import os
import time

import torch
import torch.utils.data
import torchvision
from torch import nn
from torchvision.transforms import v2


class ExponentialMovingAverage(torch.optim.swa_utils.AveragedModel):
    def __init__(self, model, decay, device="cpu"):
        def ema_avg(avg_model_param, model_param, num_averaged):
            return decay * avg_model_param + (1 - decay) * model_param

        super().__init__(model, device, ema_avg, use_buffers=True)


def accuracy(output, target, topk=(1,)):
    with torch.inference_mode():
        _, pred = output.topk(max(topk), 1, True, True)
        correct = pred.t().eq(target[None])
        return [correct[:k].flatten().sum(dtype=torch.float32) * (100.0 / target.size(0)) for k in topk]


def train_one_epoch(model, criterion, optimizer, data_loader, device, args, model_ema, scaler, state):
    model.train()
    for i, (image, target) in enumerate(data_loader):
        start_time = time.time()
        image, target = image.to(device), target.to(device)
        with torch.amp.autocast(device.type, enabled=scaler is not None):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            if args.clip_grad_norm is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if args.clip_grad_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad_norm)
            optimizer.step()
        if model_ema and i % args.model_ema_steps == 0:
            model_ema.update_parameters(model)
            if state["epoch"] < args.lr_warmup_epochs:
                model_ema.n_averaged.fill_(0)
        acc1, _ = accuracy(output, target, topk=(1, 5))
        state["step"] += 1
        print(f"step {state['step']} loss {loss.item()!r} acc1 {acc1.item():.2f} "
              f"img/s {image.shape[0] / (time.time() - start_time):.1f}", flush=True)
        if state["step"] >= args.steps:
            break


def evaluate(model, criterion, data_loader, device, log_suffix=""):
    model.eval()
    total, right, loss_sum = 0, 0.0, 0.0
    with torch.inference_mode():
        for image, target in data_loader:
            image, target = image.to(device, non_blocking=True), target.to(device, non_blocking=True)
            output = model(image)
            loss_sum += criterion(output, target).item() * len(target)
            right += (output.argmax(1) == target).sum().item()
            total += len(target)
    print(f"Test{log_suffix}: Acc@1 {100 * right / total:.3f} loss {loss_sum / total:.4f}")


def load_data(args):
    train_transform = v2.Compose([v2.RandomResizedCrop(args.train_crop_size, antialias=True),
                                  v2.RandomHorizontalFlip(), v2.PILToTensor(),
                                  v2.ToDtype(torch.float, scale=True),
                                  v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
                                  v2.ToPureTensor()])
    test_transform = v2.Compose([v2.CenterCrop(args.train_crop_size), v2.PILToTensor(),
                                 v2.ToDtype(torch.float, scale=True), v2.ToPureTensor()])
    size = (3, args.train_crop_size + 8, args.train_crop_size + 8)
    dataset = torchvision.datasets.FakeData(48, size, args.classes, transform=train_transform)
    dataset_test = torchvision.datasets.FakeData(16, size, args.classes, transform=test_transform,
                                                 random_offset=1000)
    return dataset, dataset_test


def main(args):
    os.makedirs(args.output_dir, exist_ok=True)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    if args.use_deterministic_algorithms:
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    else:
        torch.backends.cudnn.benchmark = True
    dataset, dataset_test = load_data(args)
    data_loader = torch.utils.data.DataLoader(
        dataset, batch_size=args.batch_size, sampler=torch.utils.data.RandomSampler(dataset),
        num_workers=args.workers, pin_memory=True)
    data_loader_test = torch.utils.data.DataLoader(
        dataset_test, batch_size=args.batch_size, sampler=torch.utils.data.SequentialSampler(dataset_test),
        num_workers=args.workers, pin_memory=True)
    model = torchvision.models.get_model(args.model, weights=None, num_classes=args.classes)
    model.to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
    norms = [p for m in model.modules() if isinstance(m, nn.BatchNorm2d) for p in m.parameters()]
    known = {id(p) for p in norms}
    parameters = [{"params": [p for p in model.parameters() if id(p) not in known],
                   "weight_decay": args.weight_decay}, {"params": norms, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(parameters, lr=args.lr, momentum=args.momentum, nesterov=True)
    scaler = torch.amp.GradScaler(device.type) if args.amp else None
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=args.lr_warmup_epochs)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs - args.lr_warmup_epochs)
    lr_scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [args.lr_warmup_epochs])
    model_ema = None
    if args.model_ema:
        adjust = args.batch_size * args.model_ema_steps / args.epochs
        alpha = min(1.0, (1.0 - args.model_ema_decay) * adjust)
        model_ema = ExponentialMovingAverage(model, device=device, decay=1.0 - alpha)
    state = {"epoch": 0, "step": 0}
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu", weights_only=False)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
        state = {"epoch": checkpoint["epoch"] + 1, "step": checkpoint["step"]}
        if model_ema:
            model_ema.load_state_dict(checkpoint["model_ema"])
        if scaler:
            scaler.load_state_dict(checkpoint["scaler"])

    print("Start training")
    start_time = time.time()
    while state["step"] < args.steps:
        train_one_epoch(model, criterion, optimizer, data_loader, device, args, model_ema, scaler, state)
        lr_scheduler.step()
        evaluate(model, criterion, data_loader_test, device=device)
        if model_ema:
            evaluate(model_ema, criterion, data_loader_test, device=device, log_suffix=" EMA")
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "args": args,
                      "lr_scheduler": lr_scheduler.state_dict(), **state}
        if model_ema:
            checkpoint["model_ema"] = model_ema.state_dict()
        if scaler:
            checkpoint["scaler"] = scaler.state_dict()
        torch.save(checkpoint, os.path.join(args.output_dir, f"model_{state['epoch']}.pth"))
        torch.save(checkpoint, os.path.join(args.output_dir, "checkpoint.pth"))
        state["epoch"] += 1
    print(f"Training time {datetime.timedelta(seconds=int(time.time() - start_time))}")


def get_args_parser():
    parser = argparse.ArgumentParser(description="Classification Training")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("-b", "--batch-size", default=8, type=int)
    parser.add_argument("--steps", default=10, type=int)
    parser.add_argument("--epochs", default=4, type=int, help="length of the learning rate's schedule")
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--classes", default=10, type=int)
    parser.add_argument("--lr", default=0.01, type=float)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--weight-decay", default=1e-4, type=float)
    parser.add_argument("--label-smoothing", default=0.1, type=float)
    parser.add_argument("--lr-warmup-epochs", default=1, type=int)
    parser.add_argument("--out", dest="output_dir", default="out")
    parser.add_argument("--resume", default="")
    parser.add_argument("--amp", action="store_true", help="torch.amp mixed precision")
    parser.add_argument("--model-ema", type=int, default=1)
    parser.add_argument("--model-ema-steps", type=int, default=2)
    parser.add_argument("--model-ema-decay", type=float, default=0.99)
    parser.add_argument("--clip-grad-norm", default=None, type=float)
    parser.add_argument("--train-crop-size", default=48, type=int)
    parser.add_argument("--use-deterministic-algorithms", action="store_true")
    parser.add_argument("--seed", default=0, type=int)
    return parser


if __name__ == "__main__":
    main(get_args_parser().parse_args())
