"""Follows torchvision's references/segmentation/train.py: LR-ASPP on MobileNet without weights (or FCN on a
ResNet with an auxiliary head), masks with an ignored label, a polynomial schedule, and a confusion matrix at
evaluation."""

import argparse
import os

import torch
import torch.utils.data
import torchvision
from torch import nn


class ConfusionMatrix:
    def __init__(self, num_classes):
        self.num_classes, self.mat = num_classes, None

    def update(self, a, b):
        n = self.num_classes
        if self.mat is None:
            self.mat = torch.zeros((n, n), dtype=torch.int64, device=a.device)
        with torch.inference_mode():
            k = (a >= 0) & (a < n)
            inds = n * a[k].to(torch.int64) + b[k]
            self.mat += torch.bincount(inds, minlength=n ** 2).reshape(n, n)

    def compute(self):
        h = self.mat.float()
        acc_global = torch.diag(h).sum() / h.sum()
        iu = torch.diag(h) / (h.sum(1) + h.sum(0) - torch.diag(h)).clamp(min=1)
        return acc_global.item() * 100, iu.mean().item() * 100


def criterion(inputs, target):
    losses = {name: nn.functional.cross_entropy(x, target, ignore_index=255) for name, x in inputs.items()}
    if len(losses) == 1:
        return losses["out"]
    return losses["out"] + 0.5 * losses["aux"]


def make_dataset(count, classes, size, seed):
    gen = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, size, size, generator=gen)
    coarse = torch.randint(0, classes, (count, 1, 4, 4), generator=gen).float()
    masks = nn.functional.interpolate(coarse, size=(size, size)).squeeze(1).long()
    masks[:, :2] = masks[:, -2:] = 255
    return torch.utils.data.TensorDataset(images, masks)


def train_one_epoch(model, optimizer, data_loader, lr_scheduler, device, state, args, scaler):
    model.train()
    for image, target in data_loader:
        image, target = image.to(device), target.to(device)
        with torch.amp.autocast(device.type, enabled=scaler is not None):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        lr_scheduler.step()
        state["step"] += 1
        print(f"step {state['step']} loss {loss.item()!r} lr {optimizer.param_groups[0]['lr']:.5f}",
              flush=True)
        if state["step"] >= args.steps:
            break


def evaluate(model, data_loader, device, num_classes):
    model.eval()
    confmat = ConfusionMatrix(num_classes)
    with torch.inference_mode():
        for image, target in data_loader:
            image, target = image.to(device), target.to(device)
            output = model(image)["out"]
            confmat.update(target.flatten(), output.argmax(1).flatten())
    print("global correct: {:.1f} mean IoU: {:.1f}".format(*confmat.compute()))


def main(args):
    os.makedirs(args.output_dir, exist_ok=True)
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    if args.use_deterministic_algorithms:
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
    else:
        torch.backends.cudnn.benchmark = True
    data_loader = torch.utils.data.DataLoader(make_dataset(16, args.classes, args.crop_size, 0), shuffle=True,
                                              batch_size=args.batch_size, num_workers=args.workers,
                                              drop_last=True)
    data_loader_test = torch.utils.data.DataLoader(make_dataset(4, args.classes, args.crop_size, 1),
                                                   batch_size=1,
                                                   num_workers=args.workers)
    kwargs = {"aux_loss": True} if args.aux_loss else {}
    model = torchvision.models.get_model(args.model, weights=None, weights_backbone=None,
                                         num_classes=args.classes,
                                         **kwargs)
    model.to(device)
    params_to_optimize = [{"params": [p for p in model.backbone.parameters() if p.requires_grad]},
                          {"params": [p for p in model.classifier.parameters() if p.requires_grad]}]
    if args.aux_loss:
        params = [p for p in model.aux_classifier.parameters() if p.requires_grad]
        params_to_optimize.append({"params": params, "lr": args.lr * 10})
    optimizer = torch.optim.SGD(params_to_optimize, lr=args.lr, momentum=args.momentum, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device.type) if args.amp else None
    lr_scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=args.steps, power=0.9)
    epoch, state = 0, {"step": 0}
    if args.resume:
        checkpoint = torch.load(args.resume, map_location="cpu", weights_only=False)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        lr_scheduler.load_state_dict(checkpoint["lr_scheduler"])
        epoch, state["step"] = checkpoint["epoch"] + 1, checkpoint["step"]
        if scaler:
            scaler.load_state_dict(checkpoint["scaler"])
    while state["step"] < args.steps:
        train_one_epoch(model, optimizer, data_loader, lr_scheduler, device, state, args, scaler)
        evaluate(model, data_loader_test, device=device, num_classes=args.classes)
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch,
                      "args": args,
                      "lr_scheduler": lr_scheduler.state_dict(), "step": state["step"]}
        if scaler:
            checkpoint["scaler"] = scaler.state_dict()
        torch.save(checkpoint, os.path.join(args.output_dir, f"model_{epoch}.pth"))
        torch.save(checkpoint, os.path.join(args.output_dir, "checkpoint.pth"))
        epoch += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Segmentation Training")
    parser.add_argument("--model", default="lraspp_mobilenet_v3_large")
    parser.add_argument("--aux-loss", action="store_true", help="auxiliary loss (FCN and DeepLab only)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("-b", "--batch-size", default=4, type=int)
    parser.add_argument("--steps", default=10, type=int)
    parser.add_argument("--classes", default=6, type=int)
    parser.add_argument("--crop-size", default=64, type=int)
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--lr", default=0.01, type=float)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--amp", action="store_true", help="torch.amp mixed precision")
    parser.add_argument("--use-deterministic-algorithms", action="store_true")
    parser.add_argument("--out", dest="output_dir", default="out")
    parser.add_argument("--resume", default="")
    parser.add_argument("--seed", default=0, type=int)
    main(parser.parse_args())
