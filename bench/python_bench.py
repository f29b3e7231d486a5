#!/usr/bin/env python3
"""The Python face: Llama-3.1 of 8B and 70B from their configurations, built and trained two steps on a
simulated card; and transformers' models beside PyTorch's MemTracker on the same code, in the same
process. Figures, no gate.

    scripts/python.sh bench/python_bench.py [CASE ...]

The cases are those of tests/peers/transformers_cases.json; without names the first of each model.
"""
import gc
import json
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEERS = ROOT / "tests" / "peers"
sys.path.insert(0, str(PEERS))

LLAMA = """
import time
begin = time.perf_counter()
import torch
torch_s = time.perf_counter() - begin
from transformers import AutoModelForCausalLM, LlamaConfig
import transformers.models.llama.modeling_llama
transformers_s = time.perf_counter() - begin - torch_s
import headroom, json, resource
headroom.simulate
begin = time.perf_counter()
config = LlamaConfig(vocab_size=128256, num_key_value_heads=8, max_position_embeddings=131072,
                     rope_theta=500000.0, **{sizes})
box = headroom.simulate("unlimited")
with torch.device("sim"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).train()
    ids = torch.zeros(1, 2048, dtype=torch.long)
    mask = torch.ones_like(ids)
optimizer = torch.optim.AdamW(model.parameters())
built = time.perf_counter()
for _ in range(2):
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids, attention_mask=mask).loss.backward()
    optimizer.step()
end = time.perf_counter()
print(json.dumps(dict(torch_s=torch_s, transformers_s=transformers_s, build_s=built - begin,
                      steps_s=end - built, peak=torch.sim.max_memory_allocated(),
                      read_as_zero=box[0].values_read_as_zero,
                      mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)))
"""
SIZES = {
    "Llama-3.1-8B": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
                         num_attention_heads=32),
    "Llama-3.1-70B": dict(hidden_size=8192, intermediate_size=28672, num_hidden_layers=80,
                          num_attention_heads=64),
}


def llama(name, runs=3):
    best = None
    for _ in range(runs):
        text = subprocess.run([sys.executable, "-c", LLAMA.replace("{sizes}", repr(SIZES[name]))],
                              capture_output=True, text=True, check=True).stdout
        figures = json.loads(text.splitlines()[-1])
        if best is None or figures["build_s"] + figures["steps_s"] < best["build_s"] + best["steps_s"]:
            best = figures
    print(f"{name}: built in {best['build_s']:.2f} s, two steps {best['steps_s']:.2f} s, together "
          f"{best['build_s'] + best['steps_s']:.2f} s (best of {runs}); process {best['mib']} MiB; peak "
          f"{best['peak'] / 2**30:.2f} GiB; imports: torch {best['torch_s']:.2f} s, transformers "
          f"{best['transformers_s']:.2f} s")


def first_of_each_model(cases):
    models = {case["config"]: name for name, case in reversed(cases.items())}
    return reversed(models.values())


def beside_memtracker(names):
    """Either side builds the model and trains it two steps."""
    import torch
    import headroom
    import transformers_peaks
    from transformers_steps import Training

    cases = {case["name"]: case for case in json.loads(
        (PEERS / "transformers_cases.json").read_text())["cases"]}
    times = []
    for name in names or first_of_each_model(cases):
        begin = time.perf_counter()
        judged = transformers_peaks.memtracker_peak(cases[name])
        judged_s = time.perf_counter() - begin
        begin = time.perf_counter()
        with headroom.simulate("unlimited", rules="cpu", cublas_workspaces=False):
            with torch.device("sim"):
                training = Training(cases[name])
            training.run(steps=2)
            peak = torch.sim.memory_stats()["requested_bytes.all.peak"]
            ours_s = time.perf_counter() - begin
            del training
            gc.collect()
        times.append(judged_s / ours_s)
        print(f"{name}: MemTracker {judged_s:.2f} s, on a simulated card {ours_s:.2f} s: "
              f"{times[-1]:.0f} x; peaks differ by {100 * abs(peak / judged - 1):.4f} %", flush=True)
    print(f"{len(times)} models: median {statistics.median(times):.0f} x, least {min(times):.0f} x")


def main():
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
          f"OMP_NUM_THREADS=1, memory {resource.getpagesize()} bytes a page")
    for name in SIZES:
        llama(name)
    beside_memtracker(sys.argv[1:])


if __name__ == "__main__":
    main()
