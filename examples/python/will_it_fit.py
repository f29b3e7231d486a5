# %% [markdown]
# # Will it fit?
# Estimates a GPT-2 of transformers before it runs on a GPU. Each `# %%` begins a cell of a notebook.

# %%
import torch
import transformers

import headroom


def build():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6))


def batch_of(rows):
    ids = torch.zeros(rows, 512, dtype=torch.long)
    return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


# %% [markdown]
# How much memory does a training step need, when, and for what? Nothing is allocated.

# %%
report = headroom.estimate(build, batch_of(16), gpu="RTX 4090")
print(report)
print("fits:", report.fits)

# %% [markdown]
# Which batch fits a card of 12 GiB, with everything in fp32 and with bf16 activations?

# %%
plain = headroom.find_max_batch_size(build, batch_of, gpu="12GiB", max_batch=256)
mixed = headroom.find_max_batch_size(build, batch_of, gpu="12GiB", max_batch=256,
                                     precision="amp_bf16")
print("fp32:", plain, "recommended", plain.recommended)
print("bf16:", mixed, "recommended", mixed.recommended)

# %% [markdown]
# Simulate a box of cards in this notebook. `sim:0` is a device like any other, and a request that is too large
# raises the same error as on CUDA.

# %%
box = headroom.simulate("2x8GiB")
model = build().to("sim:0")
optimizer = torch.optim.AdamW(model.parameters())


def step(rows):
    optimizer.zero_grad()
    batch = {name: one.to("sim:0") for name, one in batch_of(rows).items()}
    model(**batch).loss.backward()
    optimizer.step()


rows = 128
while True:
    try:
        step(rows)
        break
    except torch.OutOfMemoryError as error:
        print(f"{rows} rows:", headroom.classify_exception(error).asked, "more than there is")
    optimizer.zero_grad()
    rows //= 2
print(f"{rows} rows fit, at most {headroom.Bytes(torch.sim.max_memory_allocated('sim:0'))}")

# %% [markdown]
# How much memory did each part need?

# %%
with headroom.GpuMemoryScope("forward", "sim:0") as forward:
    loss = model(**{name: one.to("sim:0") for name, one in batch_of(rows).items()}).loss
print(forward)
with headroom.GpuMemoryScope("backward", "sim:0") as backward:
    loss.backward()
print(backward)
box.end()
