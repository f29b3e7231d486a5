#!/usr/bin/env python3
"""Makes the pictures of README and guides from the program as it was built. `make docs-pictures` runs it.

    scripts/docs-pictures.py [NAME ...]    all pictures, or these: overview top estimate profile report diff

Needs tmux (terminals) and chromium (pages). The terminals' pictures are SVG, made from what the program
printed; the pages' are PNG.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from terminal_picture import Screen, svg  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/pictures"
CARDS, GIB = 8, 1 << 30
# Card, GiB and command of the jobs on the box.
JOBS = [(0, 27, "python train.py --batch-size 64"), (1, 15, "python finetune.py"), (1, 6, "python serve.py"),
        (2, 17, "python train.py --resume"), (4, 30, "torchrun --nproc-per-node 1 pretrain.py"), (5, 9, "jupyter-lab")]


class Box:
    """Eight simulated cards with some jobs, as in the demo; the jobs are processes that wait."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.jobs = []
        self.environment = {**os.environ, "HEADROOM_STATE_DIR": self.folder.name, "LC_ALL": "C.UTF-8",
                            "HEADROOM_LEASE_DIR": self.folder.name + "/leases", "TERM": "xterm-256color",
                            "HEADROOM_GPUS": f"sim:{CARDS}xRTX5090@lab", "PATH": f"{ROOT}/build/bin:{os.environ['PATH']}"}
        self.environment.pop("NO_COLOR", None)
        shares = []
        for card, gib, command in JOBS:
            job = subprocess.Popen(["bash", "-c", 'exec -a "$0" cat', command], stdin=subprocess.PIPE)
            self.jobs.append(job)
            time.sleep(0.05)
            after_name = pathlib.Path(f"/proc/{job.pid}/stat").read_text().rpartition(")")[2].split()
            shares.append({"pid": job.pid, "start_ticks": int(after_name[19]), "card": card, "used_bytes": gib * GIB})
        boxes = pathlib.Path(self.folder.name) / "boxes"
        boxes.mkdir()
        cards = json.loads(self.run("headroom", "gpus", "--gpus", f"sim:{CARDS}xRTX5090", "--json"))["gpus"]
        (boxes / "lab.json").write_text(json.dumps(
            {"schema": 1, "cards": [{"name": card["name"], "total_bytes": card["total_bytes"],
                                     "reserved_bytes": card["reserved_bytes"]} for card in cards], "shares": shares}))

    def run(self, *words):
        return subprocess.run(words, env=self.environment, check=True, capture_output=True, text=True).stdout

    def screen(self, name, command, columns, rows):
        # A shell of tmux's may read a profile that sets the path anew.
        command = f"PATH={ROOT}/build/bin:$PATH; {command}"
        return Screen(f"headroom-{name}-{os.getpid()}", command, columns, rows,
                      [f"{key}={value}" for key, value in self.environment.items()
                       if key.startswith("HEADROOM") or key == "LC_ALL"])

    def train(self):
        """A training of Headroom's own on a free card, until the box is closed."""
        self.jobs.append(subprocess.Popen(
            ["headroom", "train", "model=gpt-tiny", "dataset=synthetic", "steps=1000000", "batch_size=64",
             "min_gpu_memory_mb=0", f"out={self.folder.name}/run", "--inject", "oom@step=2:phase=backward"],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(10)

    def close(self):
        for job in self.jobs:
            job.kill()
            job.wait()
        self.folder.cleanup()


def picture_of(box, name, command, columns, rows, title, wait=None, keys=()):
    """The screen after a command has printed its prompt's mark, or shows a text."""
    done = "done-" + name
    screen = box.screen(name, command if wait else f"{command}; printf '{done}'; sleep 600", columns, rows)
    try:
        screen.wait_for(wait or done)
        for key in keys:
            screen.keys(key)
        if wait:
            time.sleep(30)  # for the graphs
        text = screen.text(colours=True).replace(done, "")
    finally:
        screen.close()
    lines = text.rstrip().split("\n")
    (PICTURES / f"{name}.svg").write_text(svg("\n".join(lines), columns, title))


def page_of(box, name, commands, size):
    """A page as Chromium shows it, of the last of the commands."""
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            subprocess.run(command, shell=True, cwd=folder, env=box.environment, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        f"--window-size={size}", "--virtual-time-budget=5000", f"--user-data-dir={folder}/profile",
                        f"--screenshot={PICTURES / (name + '.png')}", f"file://{folder}/page.html"],
                       check=True, stderr=subprocess.DEVNULL)


ESTIMATE = 'headroom estimate gpt2 --batch 4 --gpus "RTX 4090"'
MAKERS = {
    "overview": lambda box: picture_of(box, "overview", "headroom", 84, 40, "headroom"),
    "top": lambda box: (box.train(), picture_of(box, "top", "headroom top", 110, 24, "headroom top", wait="RTX 5090")),
    "estimate": lambda box: picture_of(
        box, "estimate", 'headroom estimate llama-3.2-1b --seq 2048 --gpus "RTX 4090"', 92, 46,
        'headroom estimate llama-3.2-1b --seq 2048 --gpus "RTX 4090"'),
    "profile": lambda box: picture_of(box, "profile", 'headroom profile gpt2 --gpus "RTX 4090"', 100, 24,
                                      'headroom profile gpt2 --gpus "RTX 4090"'),
    "report": lambda box: page_of(box, "report", [f"{ESTIMATE} --html page.html"], "1200,960"),
    "diff": lambda box: page_of(box, "diff", [
        f"{ESTIMATE} --trace plain.hrtrace", f"{ESTIMATE} --checkpointing full --trace checkpointing.hrtrace",
        "headroom trace diff plain.hrtrace checkpointing.hrtrace --out page.html"], "1200,1900"),
}


def main(names):
    unknown = set(names) - set(MAKERS)
    if unknown:
        sys.exit(f"docs-pictures: expected {', '.join(MAKERS)}, received {', '.join(sorted(unknown))}")
    PICTURES.mkdir(exist_ok=True)
    box = Box()
    try:
        for name in names or MAKERS:
            MAKERS[name](box)
            print(f"docs/pictures: {name}")
    finally:
        box.close()


if __name__ == "__main__":
    main(sys.argv[1:])
