"""Follows PyTorch's multi-GPU tutorial for torchrun: the environment says rank and device, a
DistributedSampler deals the data, and a snapshot lets an elastic restart go on where it stopped; without
torchrun it runs as one process, like the tutorial's single-GPU program."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class MyTrainDataset(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        self.data = [(torch.rand(20, generator=generator), torch.rand(1, generator=generator))
                     for _ in range(size)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


def ddp_setup():
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        init_process_group(backend="nccl")
    else:
        init_process_group(backend="gloo")


class Trainer:
    def __init__(self, args, model, train_data, optimizer, distributed):
        self.args, self.distributed = args, distributed
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.global_rank = int(os.environ.get("RANK", 0))
        cuda = torch.cuda.is_available()
        self.device = torch.device(f"cuda:{self.local_rank}" if cuda else "cpu")
        self.model = model.to(self.device)
        self.train_data, self.optimizer = train_data, optimizer
        self.epochs_run, self.step = 0, 0
        self.snapshot_path = os.path.join(args.out, "snapshot.pt")
        if os.path.exists(self.snapshot_path):
            self.load_snapshot()
        if distributed:
            self.model = DDP(self.model, device_ids=[self.local_rank] if cuda else None)

    def load_snapshot(self):
        snapshot = torch.load(self.snapshot_path, map_location=self.device)
        self.model.load_state_dict(snapshot["MODEL_STATE"])
        self.epochs_run, self.step = snapshot["EPOCHS_RUN"], snapshot["STEP"]
        print(f"Resuming training from snapshot at Epoch {self.epochs_run}")

    def save_snapshot(self, epoch):
        model = self.model.module if self.distributed else self.model
        torch.save({"MODEL_STATE": model.state_dict(), "EPOCHS_RUN": epoch + 1, "STEP": self.step},
                   self.snapshot_path)
        print(f"Epoch {epoch} | Training snapshot saved at {self.snapshot_path}")

    def run_batch(self, source, targets):
        self.optimizer.zero_grad()
        output = self.model(source)
        loss = F.mse_loss(output, targets)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        if self.global_rank == 0:
            print(f"step {self.step} loss {loss.item()!r}", flush=True)

    def run_epoch(self, epoch):
        b_sz = len(next(iter(self.train_data))[0])
        print(f"[rank {self.global_rank}] Epoch {epoch} | Batchsize: {b_sz} | Steps: {len(self.train_data)}")
        if self.distributed:
            self.train_data.sampler.set_epoch(epoch)
        for source, targets in self.train_data:
            if self.step >= self.args.steps:
                return
            self.run_batch(source.to(self.device), targets.to(self.device))

    def train(self):
        epoch = self.epochs_run
        while self.step < self.args.steps:
            self.run_epoch(epoch)
            if self.global_rank == 0 and epoch % self.args.save_every == 0:
                self.save_snapshot(epoch)
            epoch += 1


def main(args):
    distributed = "RANK" in os.environ
    if distributed:
        ddp_setup()
    torch.manual_seed(args.seed)
    os.makedirs(args.out, exist_ok=True)
    train_set = MyTrainDataset(128)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    sampler = DistributedSampler(train_set) if distributed else None
    train_data = DataLoader(train_set, batch_size=args.batch_size, pin_memory=True, shuffle=sampler is None,
                            sampler=sampler)
    Trainer(args, model, train_data, optimizer, distributed).train()
    if distributed:
        destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps in all")
    parser.add_argument("--save_every", type=int, default=1, help="epochs between two snapshots")
    parser.add_argument("--batch_size", type=int, default=16, help="batch size on each device")
    parser.add_argument("--out", default="out")
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
