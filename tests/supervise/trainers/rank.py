#!/usr/bin/env python3
"""One rank of a data-parallel training; launch.py starts all of them.

Ranks meet once a step at a socket of rank 0, as an all-reduce does. A rank whose peer is gone says
what NCCL says (PyTorch 2.5, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, NCCLUtils.hpp).
"""
import json
import os
import socket
import sys
import time
import traceback

import loop
import memory
import plain
import texts
from nature import Nature

DistBackendError = texts.kind("torch.distributed", "DistBackendError")


def watchdog(rank):
    sys.stderr.write(
        f"[rank{rank}]:[E1122 01:02:03.456789 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=25557032, "
        "NumelOut=25557032, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n")
    return DistBackendError(
        "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, remote process exited or "
        "there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed possibly due to "
        "a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: "
        "Connection closed by remote peer node01<48610>")


class Peers:
    """Rank 0 listens, the others connect; `gather` is a meeting of all."""

    def __init__(self, address, rank, world):
        self.rank = rank
        if rank == 0:
            server = socket.socket(socket.AF_UNIX)
            server.bind(address + ".new")
            server.listen(world)
            os.rename(address + ".new", address)
            self.streams = [server.accept()[0].makefile("rw") for _ in range(world - 1)]
        else:
            loop.wait_for(address)
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(address)
            self.streams = [peer.makefile("rw")]

    def receive(self, stream):
        try:
            line = stream.readline()
        except OSError:
            line = ""
        if not line:
            raise watchdog(self.rank)
        return json.loads(line)

    def send(self, stream, value):
        try:
            stream.write(json.dumps(value) + "\n")
            stream.flush()
        except OSError:
            raise watchdog(self.rank) from None

    def gather(self, ids):
        if self.rank != 0:
            self.send(self.streams[0], ids)
            return self.receive(self.streams[0])
        everybody = ids + sum((self.receive(stream) for stream in self.streams), [])
        for stream in self.streams:
            self.send(stream, "done")
        return everybody


def report(rank, error):
    """Each line of a rank's last words carries its name (torch 2.3 and later)."""
    for line in "".join(traceback.format_exception(error)).splitlines():
        sys.stderr.write(f"[rank{rank}]: {line}\n")
    sys.stderr.flush()


def main():
    settings, nature = plain.parse(), Nature.mine()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ["LOCAL_RANK"])
    loop.note_process(settings)

    def work():
        peers = Peers(os.environ["MASTER_SOCKET"], rank, world)
        loop.train(settings, memory.open_memory(nature, local_rank), nature, rank, world,
                   peers.gather)

    try:
        loop.run(settings, nature, work)
    except Exception as error:
        report(rank, error)
        if nature.leave_orphans and isinstance(error, DistBackendError):
            time.sleep(1000)  # as a rank hangs in a collective
        sys.exit(1)


if __name__ == "__main__":
    main()
