#!/usr/bin/env python3
"""plan_answers.py HEADROOM COUNT [SEED]: answers of the planner on small models, each really run. `headroom bench run
--compute` plans and trains random models on tight cards: no step may run out of memory, each card's tensors take the
predicted bytes, and its allocator reserves them within 1 %. The plan with one notch more - larger parts, or no activations
computed again - must not fit, or not be faster by the cost model."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

MODELS_A_RUN = 4
ROOM_MIB = 512  # that a plan leaves free


def model_of(draw: random.Random) -> dict:
    width = 32 * draw.randint(2, 4)
    layers, words, seq = draw.randint(2, 6), 64 * draw.randint(2, 12), 64
    if draw.random() < 0.5:
        return {"model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": draw.choice([2, 4]),
                "vocab_size": words, "n_positions": seq}
    return {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 3 * width,
            "num_attention_heads": 4, "num_key_value_heads": draw.choice([2, 4]), "vocab_size": words,
            "max_position_embeddings": seq, "tie_word_embeddings": draw.random() < 0.5}


def run(command: list[str], state: str) -> tuple[int, str, str]:
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, "HEADROOM_STATE_DIR": state, "OMP_NUM_THREADS": "1"})
    return done.returncode, done.stdout, done.stderr


class Answers:
    def __init__(self, headroom: str, seed: int) -> None:
        self.headroom, self.draw = headroom, random.Random(seed)
        self.looked_at = self.fitted = self.notches = 0
        self.wrong: list[str] = []

    def fail(self, where: str, words: str) -> None:
        self.wrong.append(f"{where}: {words}")
        print("plan_answers:", self.wrong[-1], file=sys.stderr, flush=True)

    def some(self, folder: pathlib.Path, count: int) -> None:
        draw = self.draw
        models = []
        for number in range(count):
            models.append(folder / f"model{number}.json")
            models[-1].write_text(json.dumps(model_of(draw)))
        sizes = [ROOM_MIB + draw.randint(4, 30) for _ in range(draw.randint(1, 4))]
        gpus = "sim:" + ",".join(f"1x{size}MiB" for size in sizes)
        rows = draw.randint(3, 24)
        asked = ["--gpus", gpus, "--batch", str(rows), "--seq", str(8 * draw.randint(2, 6)), "--dtype",
                 draw.choice(["float32", "bfloat16"]), "--tune", draw.choice(["full", "full", "any", "lora"])]
        state = str(folder / "state")
        command = [self.headroom, "bench", "run", "--compute", "--samples", str(3 * rows), "--out", str(folder / "out"),
                   *asked, "--json", "--models", *map(str, models)]
        code, out, err = run(command, state)
        if code not in (0, 2):
            self.fail(" ".join(command), f"exit code {code}: {err[-400:]}")
            return
        for entry in json.loads(out)["models"]:
            self.looked_at += 1
            if entry["state"] != "does not fit":
                self.fitted += 1
                self.check(f"{entry['model']} {' '.join(asked)}", entry, asked, state)

    def check(self, where: str, entry: dict, asked: list[str], state: str) -> None:
        if entry["state"] != "finished" or entry["ooms"] or entry["lighter"]:
            self.fail(where, f"{entry['state']}, {entry['ooms']} out-of-memories, {entry['why']}")
            return
        predicted = entry["predicted"]
        # A price is that of the replica with the most rows; those with a row less take no more.
        stages = len(entry["plan"]["split"]) // entry["plan"]["replicas"]
        for rank, part in enumerate(entry["plan"]["split"]):
            card, is_first = part["gpu"], rank < stages
            real, said = entry["peak_requested_bytes"][card], predicted["peak_requested_bytes"][card]
            if real != said if is_first else real > said:
                self.fail(where, f"tensors took {real}, not {said}; {entry['command']}")
            real, said = entry["peak_reserved_bytes"][card], predicted["peak_reserved_bytes"][card]
            if real > 1.01 * said or (is_first and real < 0.99 * said):
                self.fail(where, f"{real} reserved, not {said}; {entry['command']}")
        self.check_notch(where, entry, asked, state)

    def check_notch(self, where: str, entry: dict, asked: list[str], state: str) -> None:
        chosen = entry["plan"]
        stages = len(chosen["split"]) // chosen["replicas"]
        fixed = ["--replicas", str(chosen["replicas"]), "--stages", str(stages)]
        notches = [["--checkpointing", "none"]] if chosen["checkpointing"] != "none" else []
        if chosen["accumulation"] > 1:
            notches.append(["--micro-batch", str(chosen["micro_batch"] + 1)])
        at = asked.index("--tune")
        way = {"all weights": "full"}.get(entry["way"])
        if way is None:  # a lighter way was needed: heavier ones were refused before
            return
        for notch in notches:
            command = [self.headroom, "plan", entry["model"], *asked[:at], "--tune", way, *fixed, *notch, "--json"]
            code, out, err = run(command, state)
            if code not in (0, 2):
                self.fail(where, f"{' '.join(command)}: exit code {code}: {err[-300:]}")
                continue
            self.notches += 1
            other = json.loads(out)
            if other["chosen"] and other["predicted"]["step_s"] < 0.98 * entry["predicted"]["step_s"]:
                self.fail(where, f"{' '.join(notch)} takes {other['predicted']['step_s']} s, not {entry['predicted']['step_s']}")


def main() -> int:
    headroom, count = sys.argv[1], int(sys.argv[2])
    answers = Answers(headroom, int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    while answers.looked_at < count and len(answers.wrong) < 10:
        with tempfile.TemporaryDirectory() as folder:
            answers.some(pathlib.Path(folder), min(MODELS_A_RUN, count - answers.looked_at))
    print(f"{answers.looked_at} answers: {answers.fitted} plans were run, {answers.notches} with a notch more compared, "
          f"{len(answers.wrong)} wrong")
    return 1 if answers.wrong or answers.fitted < count // 3 else 0


if __name__ == "__main__":
    sys.exit(main())
