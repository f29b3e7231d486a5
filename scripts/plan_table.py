#!/usr/bin/env python3
"""scripts/plan_table.py HEADROOM [--check]: docs/reference/plans-by-size.md, what `headroom plan` answers for eight
sizes of model on three machines, and beside each answer the arithmetic of a pocket calculator: bytes a parameter,
whole layers, budget. The arithmetic knows the shapes of the models and nothing else of Headroom. Where it and the
answer disagree about what fits, the exit code is 1; with --check the page must be the one in docs/ already."""
import json
import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).parent.parent / "docs/reference/plans-by-size.md"
GIB = 2 ** 30
# Of a layer, of what comes before all layers, and after them: parameters, and those in linear layers.
Shape = tuple[str, int, int, int, int, int]


def opt(width: int, layers: int) -> Shape:
    linear = 12 * width ** 2
    return ("tied", layers, linear + 13 * width, linear, (50272 + 2050) * width, 2 * width)


def neox(width: int, layers: int, words: int) -> Shape:
    linear = 12 * width ** 2
    return ("free", layers, linear + 13 * width, linear, words * width, words * width + 2 * width)


def llama(width: int, layers: int, words: int, hidden: int, keys: int, bias: bool = False) -> Shape:
    linear = 2 * width ** 2 + 2 * width * keys + 3 * width * hidden
    more = 2 * width + (width + 2 * keys if bias else 0)
    return ("free", layers, linear + more, linear, words * width, words * width + width)


SIZES = {"1.3B": opt(2048, 24), "3B": opt(2560, 32), "7B": llama(4096, 32, 32000, 11008, 4096),
         "11B": neox(5120, 36, 50688), "13B": llama(5120, 40, 32000, 13824, 5120), "20B": neox(6144, 44, 50432),
         "33B": llama(5120, 64, 152064, 27648, 1024, bias=True), "70B": llama(8192, 80, 32000, 28672, 1024)}
BOXES = {"sim:8x31.36GiB": (8, 31.36), "sim:4x24GiB": (4, 24), "sim:1x24GiB": (1, 24)}
# Bytes of a parameter in a linear layer of a block, and of another one: weight, gradient and states in bfloat16; in 8
# bit a byte and a scale for 256 values, in 4 bit half a byte and one for 64 (weights) or 128 (states); adapters of rank
# 8 are left out.
WAYS = {"all weights": (8, 8),
        "all weights, optimizer states in 8 bit": (4 + 2 * (1 + 4 / 256), 4 + 2 * (1 + 4 / 256)),
        "all weights, optimizer states in 4 bit": (4 + 2 * (0.5 + 4 / 128), 4 + 2 * (0.5 + 4 / 128)),
        "LoRA adapters": (2, 2),
        "LoRA adapters over weights in 8 bit": (1, 2),
        "LoRA adapters over weights in 4 bit": (0.5 + 4 / 64, 2)}


def cards_for(sizes: list[float], budget: float) -> int | None:
    """Whole layers one after another; none if one is larger than a card's budget."""
    needed, filled = 1, 0.0
    for size in sizes:
        if size > budget:
            return None
        needed, filled = (needed, filled + size) if filled + size <= budget else (needed + 1, size)
    return needed


def arithmetic(shape: Shape, way: str, cards: int, budget: float) -> tuple[bool, str]:
    """Whether whole layers fit, and the calculation in words."""
    tied, layers, of_layer, linear, before, after = shape
    in_linear, elsewhere = WAYS[way]
    layer = linear * in_linear + (of_layer - linear) * elsewhere
    sizes = [layer] * layers
    sizes[0] += before * elsewhere
    sizes[-1] += after * elsewhere
    needed = cards_for(sizes, budget * GIB)
    if tied == "tied" and needed != 1:  # the last card has a copy of the embedding, without states
        sizes[-1] += before * (4 if way.startswith("all") else 2)
        needed = cards_for(sizes, budget * GIB)
    words = f"{sum(sizes) / GIB:.1f} GiB, {layer / GIB:.2f} a layer"
    if needed is None:
        return False, words + ": a layer is too large"
    return needed <= cards, f"{words}: {needed} card{'' if needed == 1 else 's'}"


def answer(headroom: str, size: str, tune: str, box: str) -> dict:
    command = [headroom, "plan", size, "--batch", "32", "--seq", "1024", "--dtype", "bfloat16", "--tune", tune,
               "--gpus", box, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 2):
        sys.exit(f"plan_table: {' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def shape_words(chosen: dict) -> str:
    replicas, ranks = chosen["replicas"], len(chosen["split"])
    stages = ranks // replicas
    words = [f"{replicas} replicas"] if replicas > 1 else []
    words += [f"{stages} stages"] if stages > 1 else []
    return " in ".join(words) or "one card"


def row(headroom: str, size: str, tune: str, box: str, wrong: list[str]) -> str:
    cards, total = BOXES[box]
    budget = 0.7 * total
    plan = answer(headroom, size, tune, box)
    sums, cells = [], []
    for refused in plan["refused_ways"]:
        fits, words = arithmetic(SIZES[size], refused["way"], cards, budget)
        sums.append(f"{refused['way']}: {words}")
        if fits and "for weights" in refused["why_not"]:
            wrong.append(f"{size} {tune} {box}: {refused['way']} should fit: {words}")
    chosen = plan["chosen"]
    if chosen:
        fits, words = arithmetic(SIZES[size], plan["way"], cards, budget)
        sums.append(f"{plan['way']}: {words}")
        if not fits:
            wrong.append(f"{size} {tune} {box}: {plan['way']} should not fit: {words}")
        predicted = plan["predicted"]
        stays, most = max(predicted["resident_bytes"]) / GIB, max(predicted["peak_reserved_bytes"]) / GIB
        again = "" if chosen["checkpointing"] == "none" else ", checkpointing"
        cells = [plan["way"], shape_words(chosen) + again,
                 f"{stays:.1f} of {budget:.1f}", f"{most:.1f} of {total - max(0.5, total / 20):.1f}",
                 f"{predicted['step_s']:.3g} s"]
    else:
        last = plan["refused_ways"][-1]["why_not"]
        needed = plan["cards_needed"]
        cells = ["nothing fits", last + (f"; {needed} cards would do" if needed else ""), "", "", ""]
    return "| " + " | ".join([size, tune, "<br>".join(sums), *cells]) + " |\n"


def page(headroom: str, wrong: list[str]) -> str:
    text = ("# Plans by size\n\nWhat [`headroom plan`](commands.md#headroom-plan) answers for 32 rows of 1,024 tokens in pure "
            "bfloat16 with AdamW, beside the\narithmetic of a pocket calculator: the bytes that stay of all parameters, and how "
            "many cards hold whole layers of them within\n70 % of a card. `make plan-table` makes this page anew, and fails where "
            "the two disagree about what fits.\n\nBytes a parameter: all weights 8 (weight 2, gradient 2, states 4), with states "
            "in 8 bit 6, in 4 bit 5; with adapters 2, over\nweights in 8 bit 1, in 4 bit a little more than a half, for layers that "
            "are no block's linear ones 2. Sizes are in GiB.\n")
    for box in BOXES:
        cards, total = BOXES[box]
        text += (f"\n## {cards} card{'s' if cards > 1 else ''} of {total:g} GiB\n\n| size | `--tune` | arithmetic | way | plan | stays "
                 "| reserved | a step |\n|---|---|---|---|---|--:|--:|--:|\n")
        for size in SIZES:
            for tune in ("full", "lora", "any"):
                text += row(headroom, size, tune, box, wrong)
    return text


def main() -> int:
    wrong: list[str] = []
    text = page(sys.argv[1], wrong)
    for one in wrong:
        print("plan_table:", one, file=sys.stderr)
    if "--check" in sys.argv:
        if PAGE.read_text() != text:
            print(f"plan_table: {PAGE} is not of today: make plan-table", file=sys.stderr)
            return 1
    else:
        PAGE.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
