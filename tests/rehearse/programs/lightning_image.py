"""An image classifier in Lightning's usual form: a LightningModule, a DataModule, and a Trainer with
ModelCheckpoint and a validation loop, on a GPU if there is one and otherwise on the CPU."""

import argparse

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy
from torchvision.models import resnet18


class ImageData(L.LightningDataModule):
    def __init__(self, batch_size=8):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage=None):
        gen = torch.Generator().manual_seed(0)
        images, labels = torch.randn(80, 3, 32, 32, generator=gen), torch.randint(0, 10, (80,), generator=gen)
        self.train_set = TensorDataset(images[:64], labels[:64])
        self.val_set = TensorDataset(images[64:], labels[64:])

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True, pin_memory=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.batch_size, pin_memory=True)


class Classifier(L.LightningModule):
    def __init__(self, lr=0.05, max_steps=10):
        super().__init__()
        self.save_hyperparameters()
        model = resnet18(weights=None, num_classes=10)
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        model.maxpool = nn.Identity()
        self.model = model
        self.val_acc = MulticlassAccuracy(num_classes=10)

    def forward(self, x):
        return self.model(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        print(f"step {self.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_acc(logits, y)
        self.log("val_loss", F.cross_entropy(logits, y), prog_bar=True)
        self.log("val_acc", self.val_acc, prog_bar=True)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9, weight_decay=5e-4)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.hparams.max_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--resume", default=None, help="a checkpoint's path")
    args = parser.parse_args()
    L.seed_everything(args.seed, workers=True)
    checkpoint = ModelCheckpoint(dirpath=f"{args.out}/checkpoints", monitor="val_loss", save_top_k=1,
                                 save_last=True,
                                 filename="{step}-{val_loss:.3f}")
    trainer = L.Trainer(
        max_steps=args.steps, accelerator="gpu" if torch.cuda.is_available() else "cpu", devices=args.devices,
        precision=args.precision, default_root_dir=args.out, logger=CSVLogger(args.out, name="csv"),
        callbacks=[checkpoint, LearningRateMonitor("step")], log_every_n_steps=1, val_check_interval=4,
        gradient_clip_val=1.0, enable_progress_bar=False)
    trainer.fit(Classifier(max_steps=args.steps), datamodule=ImageData(args.batch_size),
                ckpt_path=args.resume)
    print("best", checkpoint.best_model_path, checkpoint.best_model_score)


if __name__ == "__main__":
    main()
