"""A pretend CUDA runtime: cards whose memory is a JSON file that all programs of the machine share.

PRETEND_CARD_FILE names the file; its form is that of tests/fake_nvml, so that a process that asks the fake
driver sees what programs hold here. CUDA_VISIBLE_DEVICES is obeyed as CUDA does. A program's share
vanishes when it ends; after a kill, another process has to play the driver (`bury_the_dead`).

    card = Card()
    card.allocate(1 << 30)      # or NoRoom, with the figures that a driver would give
"""
import atexit
import contextlib
import fcntl
import json
import os

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(value):
    """Bytes of 3, "3" or "3GiB"."""
    if isinstance(value, (int, float)):
        return int(value)
    number = value.rstrip("BKMGi")
    return int(float(number) * UNITS[value[len(number):] or "B"])


class NoRoom(Exception):
    """What is known of a card when it has no room."""

    def __init__(self, device, asked, total, free, mine, others):
        super().__init__(f"asked {asked} of {free}")
        self.device, self.asked, self.total, self.free = device, asked, total, free
        self.mine, self.others = mine, others


@contextlib.contextmanager
def machine(path):
    """The machine's state, alone; what the block changed is written, whole or not at all."""
    with open(path + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(path) as file:
            text = file.read()
        state = json.loads(text)
        yield state
        changed = json.dumps(state)
        if changed != json.dumps(json.loads(text)):
            with open(path + ".new", "w") as file:
                file.write(changed)
            os.replace(path + ".new", path)


def free_of(card):
    used = sum(size(process["used"]) for process in card.get("processes", []))
    return size(card["total"]) - size(card.get("reserved", 0)) - used


def set_share(card, pid, used):
    processes = [p for p in card.get("processes", []) if p["pid"] != pid]
    card["processes"] = processes + ([{"pid": pid, "used": used}] if used else [])


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def bury_the_dead(path):
    """Frees the memory of processes that ended, as a driver does."""
    with machine(path) as state:
        for card in state["cards"]:
            for process in card.get("processes", []):
                if not alive(process["pid"]):
                    set_share(card, process["pid"], 0)


def visible(cards):
    """Indices of the cards that CUDA would show, in its order (PCI order)."""
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(range(len(cards)))
    indices = []
    for word in filter(None, wanted.split(",")):
        found = [i for i, card in enumerate(cards)
                 if word == str(i) or (word.startswith("GPU-") and card["uuid"].startswith(word))]
        if not found:
            break  # as CUDA: what follows an unknown one is not seen
        indices.append(found[0])
    return indices


class Card:
    def __init__(self, device=0):
        self.path = os.environ["PRETEND_CARD_FILE"]
        with machine(self.path) as state:
            seen = visible(state["cards"])
        if not seen:
            raise RuntimeError("No CUDA GPUs are available")
        self.device = device % len(seen)
        self.index = seen[self.device]
        self.used = 0
        atexit.register(self.release)

    def allocate(self, amount):
        with machine(self.path) as state:
            card = state["cards"][self.index]
            free = free_of(card)
            if amount > free:
                others = [(p["pid"], size(p["used"])) for p in card.get("processes", [])
                          if p["pid"] != os.getpid()]
                raise NoRoom(self.device, amount, size(card["total"]), free, self.used, others)
            self.used += amount
            set_share(card, os.getpid(), self.used)

    def release(self):
        if self.used:
            with machine(self.path) as state:
                set_share(state["cards"][self.index], os.getpid(), 0)
            self.used = 0
