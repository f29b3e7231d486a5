"""Compares headroom.profile() with torch.profiler on a GPU; without one, on the CPU.

    scripts/python.sh tests/card/profile_check.py

One step is recorded by torch.profiler and read twice, by its own table and by Headroom: calls, CPU and device
times, kept bytes. The same step under headroom.profile() must allocate the same bytes. Exits 1 if they differ."""
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity

import headroom

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BUFFER = "Activity Buffer Request"
ACTIVITIES = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if DEVICE == "cuda" else [])


def step_of():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(16, 128, 256, device=DEVICE)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if DEVICE == "cuda":
            torch.cuda.synchronize()

    for _ in range(3):
        step()
    return step


def differences(ours, theirs):
    """Each figure of a row that is not torch.profiler's. Names of kernels are rows of theirs only."""
    rows = {row.name: row for row in ours.rows}
    # Within an operator the profiler may ask for a buffer. That row has the operator's number, and so torch
    # counts its kernel twice.
    twice = sum(one.self_device_time_total for one in theirs.key_averages() if one.key == BUFFER)
    for one in theirs.key_averages():
        if one.key in ("[memory]", BUFFER) or "CPU" not in str(one.device_type):
            continue
        row = rows.get(one.key)
        if row is None:
            yield f"{one.key}: no row"
            continue
        figures = [("calls", row.calls, one.count, 0),
                   ("cpu_s", row.cpu_s * 1e6, one.cpu_time_total, 0.02),
                   ("self_cpu_s", row.self_cpu_s * 1e6, one.self_cpu_time_total, 0.02)]
        # To a range's time torch.profiler adds that of the range as it is drawn beside its kernels.
        if DEVICE == "cuda" and row.kind != "range":
            own = one.device_time_total
            if 0.01 < own - row.device_s * 1e6 <= twice + 0.01:
                own -= twice
            figures += [("device_s", row.device_s * 1e6, own, 0.02),
                        ("self_device_s", row.self_device_s * 1e6, one.self_device_time_total, 0.02),
                        ("self_kept_bytes", row.self_kept_bytes, one.self_device_memory_usage, 0)]
        for name, our, their, share in figures:
            if abs(our - their) > share * abs(their) + 0.01:
                yield f"{one.key}: {name} is {our}, torch.profiler has {their}"


def bytes_of(profile):
    return {row.name: (row.calls, row.self_bytes, row.self_cpu_bytes) for row in profile.rows
            if row.self_bytes or row.self_cpu_bytes}


def main():
    step = step_of()
    with torch.profiler.profile(activities=ACTIVITIES, record_shapes=True, profile_memory=True) as recorded:
        step()
    theirs = headroom.profile.of(recorded)
    wrong = list(differences(theirs, recorded))
    with headroom.profile() as ours:
        step()
    if bytes_of(ours) != bytes_of(theirs):
        wrong.append(f"bytes differ: {bytes_of(ours)} and {bytes_of(theirs)}")
    print(ours)
    print(ours.table(group_by="module"))
    print("\n".join(wrong) or f"{len(ours.rows)} rows on {DEVICE}: as torch.profiler")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
