"""Follows torchvision's references/detection/train.py: a Faster R-CNN with a small MobileNet backbone and no
weights, lists of images and targets of different sizes, a dictionary of losses, warm-up inside the first
epoch, evaluation."""

import argparse
import math
import os
import sys

import torch
import torch.utils.data
import torchvision
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator


class Boxes(torch.utils.data.Dataset):
    def __init__(self, count, classes, seed):
        gen = torch.Generator().manual_seed(seed)
        self.samples = []
        for number in range(count):
            h, w = (int(torch.randint(72, 128, (1,), generator=gen)) for _ in range(2))
            image = torch.rand(3, h, w, generator=gen)
            n = int(torch.randint(1, 5, (1,), generator=gen))
            corner = torch.rand(n, 2, generator=gen) * torch.tensor([w - 40.0, h - 40.0])
            size = 12 + torch.rand(n, 2, generator=gen) * 28
            boxes = torch.cat([corner, corner + size], dim=1)
            target = {"boxes": boxes, "labels": torch.randint(1, classes, (n,), generator=gen),
                      "image_id": number, "area": size.prod(dim=1),
                      "iscrowd": torch.zeros(n, dtype=torch.int64)}
            self.samples.append((image, target))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def collate_fn(batch):
    return tuple(zip(*batch))


def to_device(targets, device):
    return [{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in t.items()} for t in targets]


def train_one_epoch(model, optimizer, data_loader, device, epoch, state, args, scaler):
    model.train()
    lr_scheduler = None
    if epoch == 0:
        lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0 / 1000,
                                                         total_iters=min(1000, len(data_loader) - 1))
    for images, targets in data_loader:
        images = list(image.to(device) for image in images)
        targets = to_device(targets, device)
        with torch.amp.autocast(device.type, enabled=scaler is not None):
            loss_dict = model(images, targets)
            losses = sum(loss for loss in loss_dict.values())
        loss_value = losses.item()
        if not math.isfinite(loss_value):
            print(f"Loss is {loss_value}, stopping training")
            print(loss_dict)
            sys.exit(1)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(losses).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            losses.backward()
            optimizer.step()
        if lr_scheduler is not None:
            lr_scheduler.step()
        state["step"] += 1
        parts = " ".join(f"{k} {v.item():.4f}" for k, v in loss_dict.items())
        print(f"step {state['step']} loss {loss_value!r} {parts}", flush=True)
        if state["step"] >= args.steps:
            break


@torch.inference_mode()
def evaluate(model, data_loader, device):
    model.eval()
    found = hits = wanted = 0
    for images, targets in data_loader:
        images = list(img.to(device) for img in images)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        outputs = [{k: v.to("cpu") for k, v in t.items()} for t in model(images)]
        for output, target in zip(outputs, targets):
            found += len(output["boxes"])
            wanted += len(target["boxes"])
            if len(output["boxes"]):
                overlap = torchvision.ops.box_iou(target["boxes"], output["boxes"])
                hits += (overlap.max(dim=1).values > 0.5).sum().item()
    print(f"eval: {found} boxes found, {hits} of {wanted} met")


def build_model(classes):
    backbone = torchvision.models.mobilenet_v3_small(weights=None).features
    backbone.out_channels = 576
    anchors = AnchorGenerator(sizes=((16, 32, 64),), aspect_ratios=((0.5, 1.0, 2.0),))
    pooler = torchvision.ops.MultiScaleRoIAlign(featmap_names=["0"], output_size=3, sampling_ratio=2)
    return FasterRCNN(backbone, num_classes=classes, rpn_anchor_generator=anchors, box_roi_pool=pooler,
                      min_size=96,
                      max_size=160, rpn_pre_nms_top_n_train=200, rpn_post_nms_top_n_train=100,
                      rpn_pre_nms_top_n_test=100, rpn_post_nms_top_n_test=50, box_batch_size_per_image=32)


def main(args):
    os.makedirs(args.output_dir, exist_ok=True)
    device = torch.device(args.device)
    torch.manual_seed(args.seed)
    dataset, dataset_test = Boxes(16, args.classes, 0), Boxes(4, args.classes, 1)
    batch_sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), args.batch_size,
                                                  drop_last=True)
    data_loader = torch.utils.data.DataLoader(dataset, batch_sampler=batch_sampler, num_workers=args.workers,
                                              collate_fn=collate_fn)
    data_loader_test = torch.utils.data.DataLoader(dataset_test, batch_size=1, num_workers=args.workers,
                                                   collate_fn=collate_fn)
    model = build_model(args.classes).to(device)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=args.lr, momentum=args.momentum, weight_decay=1e-4)
    scaler = torch.amp.GradScaler(device.type) if args.amp else None
    lr_scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 2], gamma=0.1)
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
        train_one_epoch(model, optimizer, data_loader, device, epoch, state, args, scaler)
        lr_scheduler.step()
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "args": args,
                      "epoch": epoch,
                      "lr_scheduler": lr_scheduler.state_dict(), "step": state["step"]}
        if scaler:
            checkpoint["scaler"] = scaler.state_dict()
        torch.save(checkpoint, os.path.join(args.output_dir, f"model_{epoch}.pth"))
        torch.save(checkpoint, os.path.join(args.output_dir, "checkpoint.pth"))
        evaluate(model, data_loader_test, device=device)
        epoch += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Detection Training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("-b", "--batch-size", default=2, type=int)
    parser.add_argument("--steps", default=10, type=int)
    parser.add_argument("--classes", default=5, type=int)
    parser.add_argument("--workers", default=0, type=int)
    parser.add_argument("--lr", default=0.005, type=float)
    parser.add_argument("--momentum", default=0.9, type=float)
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--out", dest="output_dir", default="out")
    parser.add_argument("--resume", default="")
    parser.add_argument("--seed", default=0, type=int)
    main(parser.parse_args())
