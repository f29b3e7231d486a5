"""A stranger followed --advice and found that autocast, which it said would save nothing, saved a third: it was
switched on after the first step had run without it. So each piece of advice is compared with the same change made by
hand: a second program, whose source has it, must need what the advice says, to the byte."""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import programs

FOLDER = programs.HERE / "advice"

SECOND = "        if number % 2 == 0:\n            optimizer.step()\n            optimizer.zero_grad()\n"
EIGHT_BIT = [("import torch\n", "import torch\nfrom bitsandbytes.optim import AdamW8bit\n"),
             ("torch.optim.AdamW(", "AdamW8bit(")]
EIGHT_BIT_ADAM = [("import torch\n", "import torch\nfrom bitsandbytes.optim import Adam8bit\n"),
                  ("torch.optim.Adam(", "Adam8bit(")]
CHECKPOINT = ("import torch\n", "import torch\nfrom torch.utils.checkpoint import checkpoint\n")
BF16 = "with torch.autocast('cuda', torch.bfloat16):\n"
CLASSIFY = "        loss = nn.functional.cross_entropy(net(x.cuda()), labels.cuda())\n"

# What a user writes in place of what, by program and change. "": the program has nothing to change, and the answer
# says so.
BY_HAND = {
    "mlp": {
        "checkpointing": [CHECKPOINT, ("x = block(x)", "x = checkpoint(block, x, use_reentrant=False)")],
        "bf16-autocast": [("        loss = net(x", "        " + BF16 + "            loss = net(x")],
        "fused-optimizer": [("net.parameters())", "net.parameters(), fused=True)")],
        "8-bit-adamw": EIGHT_BIT,
        "half-micro-batch": [("for x, in DataLoader(data, batch_size=2048, shuffle=True):",
                              "for number, (x,) in enumerate(DataLoader(data, batch_size=1024, shuffle=True), 1):"),
                             ("square().mean()\n", "square().mean() / 2\n"),
                             ("        optimizer.step()\n        optimizer.zero_grad()\n", SECOND)]},
    "encoder": {
        "checkpointing": [CHECKPOINT, ("        return self.head(self.encoder(self.words(ids)).mean(1))",
                                       "        x = self.words(ids)\n        for layer in self.encoder.layers:\n"
                                       "            x = checkpoint(layer, x, use_reentrant=False)\n"
                                       "        return self.head(x.mean(1))")],
        "bf16-autocast": [("        loss = nn", "        " + BF16 + "            loss = nn")],
        "fused-optimizer": [("lr=1e-4)", "lr=1e-4, fused=True)")],
        "8-bit-adamw": EIGHT_BIT_ADAM,
        "half-micro-batch": [("for ids, labels in DataLoader(data, batch_size=32, shuffle=True):\n        optimizer.zero_grad()\n",
                              "for number, (ids, labels) in enumerate(DataLoader(data, batch_size=16, shuffle=True)):\n"
                              "        if number % 2 == 0:\n            optimizer.zero_grad()\n"),
                             ("labels.cuda())\n", "labels.cuda()) / 2\n"),
                             ("        optimizer.step()\n", "        if number % 2 == 1:\n            optimizer.step()\n")]},
    "gpt2": {
        "checkpointing": [("net.train()\n", "net.train()\nnet.gradient_checkpointing_enable({'use_reentrant': False})\n")],
        "bf16-autocast": [("    loss = net", "    " + BF16 + "        loss = net")],
        "fused-optimizer": [("lr=1e-4)", "lr=1e-4, fused=True)")],
        "8-bit-adamw": EIGHT_BIT,
        "half-micro-batch": ""},
    "cnn": {
        "checkpointing": "",
        "bf16-autocast": [("        loss = nn", "        " + BF16 + "            loss = nn")],
        "fused-optimizer": [("momentum=0.9)", "momentum=0.9, fused=True)")],
        "8-bit-adamw": "",
        "half-micro-batch": [("batch_size=32", "batch_size=16"),
                             ("for images, labels in train:", "for number, (images, labels) in enumerate(train, 1):"),
                             ("labels.cuda())\n", "labels.cuda()) / 2\n"),
                             ("        optimizer.step()\n        optimizer.zero_grad()\n", SECOND)]},
    "lstm": {
        "checkpointing": "",
        "bf16-autocast": [(CLASSIFY, "        " + BF16 + "    " + CLASSIFY)],
        "fused-optimizer": [("net.parameters())\ndata", "net.parameters(), fused=True)\ndata")],
        "8-bit-adamw": EIGHT_BIT_ADAM,
        "half-micro-batch": [("for x, labels in DataLoader(data, batch_size=64, shuffle=True):",
                              "for number, (x, labels) in enumerate(DataLoader(data, batch_size=32, shuffle=True), 1):"),
                             ("labels.cuda())\n", "labels.cuda()) / 2\n"),
                             ("        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n        optimizer.step()\n"
                              "        optimizer.zero_grad()\n",
                              "        if number % 2 == 0:\n"
                              "            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
                              "            optimizer.step()\n            optimizer.zero_grad()\n")]},
    "gan": {
        "checkpointing": "",
        "bf16-autocast": [("        real_logits = judge(real)\n        real_loss",
                           "        " + BF16 + "            real_logits = judge(real)\n            real_loss"),
                          ("        made = maker(noise)\n        made_logits = judge(made.detach())\n        made_loss",
                           "        " + BF16 + "            made = maker(noise)\n            made_logits = judge(made.detach())\n"
                           "            made_loss"),
                          ("        logits = judge(made)\n        loss",
                           "        " + BF16 + "            logits = judge(made)\n            loss")],
        "fused-optimizer": [("maker.parameters(), ", "maker.parameters(), fused=True, "),
                            ("judge.parameters(), ", "judge.parameters(), fused=True, ")],
        "8-bit-adamw": [*EIGHT_BIT_ADAM, ("of_judge = torch.optim.Adam(", "of_judge = Adam8bit(")],
        "half-micro-batch": ""},
    "trainer": {
        "checkpointing": [("max_steps=9", "max_steps=9, gradient_checkpointing=True,\n"
                           "    gradient_checkpointing_kwargs={'use_reentrant': False}")],
        "bf16-autocast": [("max_steps=9", "max_steps=9, bf16=True")],
        "fused-optimizer": [('"adamw_torch"', '"adamw_torch_fused"')],
        "8-bit-adamw": [("import torch\n", "import torch\nfrom bitsandbytes.optim import AdamW8bit\n"),
                        ("Trainer(net, arguments, ", "Trainer(net, arguments, optimizer_cls_and_kwargs=(AdamW8bit, {}), ")],
        "half-micro-batch": [("per_device_train_batch_size=16",
                              "per_device_train_batch_size=8, gradient_accumulation_steps=2")]},
    "amp": {
        "checkpointing": "",
        "bf16-autocast": "",
        "fused-optimizer": [("torch.optim.AdamW(net.parameters())", "torch.optim.AdamW(net.parameters(), fused=True)")],
        "8-bit-adamw": EIGHT_BIT,
        "half-micro-batch": [("for x, labels in DataLoader(data, batch_size=1024, shuffle=True):",
                              "for number, (x, labels) in enumerate(DataLoader(data, batch_size=512, shuffle=True), 1):"),
                             ("labels.cuda())\n", "labels.cuda()) / 2\n"),
                             ("        scaler.unscale_(optimizer)\n", "        if number % 2:\n            continue\n"
                              "        scaler.unscale_(optimizer)\n")]},
    "accumulate": {
        "checkpointing": [CHECKPOINT, ("parts = 4\n", "parts = 4\n\n\ndef forward(x):\n    for part in net:\n"
                                       "        x = checkpoint(part, x, use_reentrant=False)\n    return x\n\n\n"),
                          ("net(x.cuda())", "forward(x.cuda())")],
        "bf16-autocast": [("        loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())\n        loss = loss / parts",
                           "        " + BF16 + "            loss = nn.functional.mse_loss(net(x.cuda()), y.cuda())\n"
                           "            loss = loss / parts")],
        "fused-optimizer": [("net.parameters())", "net.parameters(), fused=True)")],
        "8-bit-adamw": EIGHT_BIT,
        "half-micro-batch": [("batch_size=512", "batch_size=256"), ("parts = 4", "parts = 8")]},
    "function": {
        "checkpointing": [CHECKPOINT, ("x = block(x)", "x = checkpoint(block, x, use_reentrant=False)")],
        "bf16-autocast": [("        for block in blocks:\n            x = block(x)\n        loss",
                           "        " + BF16 + "            for block in blocks:\n                x = block(x)\n"
                           "            loss")],
        "fused-optimizer": [("blocks.parameters())", "blocks.parameters(), fused=True)")],
        "8-bit-adamw": EIGHT_BIT,
        "half-micro-batch": [("for x, in DataLoader(data, batch_size=1024, shuffle=True):",
                              "for number, (x,) in enumerate(DataLoader(data, batch_size=512, shuffle=True), 1):"),
                             ("square().mean()\n", "square().mean() / 2\n"),
                             ("        optimizer.step()\n        optimizer.zero_grad()\n", SECOND)]}}


def rehearsed(source, *options):
    with tempfile.TemporaryDirectory() as folder:
        # So that the package counts as installed; a rehearsal runs nothing of it.
        stub = pathlib.Path(folder, "installed", "bitsandbytes")
        stub.mkdir(parents=True)
        (stub / "__init__.py").write_text("raise SystemExit('not in a rehearsal')")
        (pathlib.Path(folder) / "train.py").write_text(source)
        environment = {**programs.environment(), "PYTHONPATH": str(stub.parent)}
        done = subprocess.run([programs.HEADROOM, "rehearse", "--json", "--gpus", "H100", *options, "--", sys.executable,
                               "train.py"], capture_output=True, text=True, timeout=600, env=environment, cwd=folder,
                              check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def changed(source, replacements):
    for old, new in replacements:
        if old not in source:
            raise AssertionError(f"not in the program: {old}")
        source = source.replace(old, new, 1)
    return source


class Advice(unittest.TestCase):
    def check(self, name):
        source = (FOLDER / f"{name}.py").read_text()
        changes = {change: made for change, made in BY_HAND[name].items() if made}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = {change: pool.submit(rehearsed, changed(source, made)) for change, made in changes.items()}
            whole = rehearsed(source, "--advice")
            by_hand = {change: run.result()["peak"] for change, run in runs.items()}
        advised = {one["change"]: one for one in whole["advice"]}
        self.assertEqual(sorted(whole["not_tried"]), sorted(set(BY_HAND[name]) - set(changes)))
        self.assertEqual(sorted([*advised, *whole["saves_nothing"]]), sorted(changes))
        for change, peak in by_hand.items():
            with self.subTest(change=change):
                if change in whole["saves_nothing"]:
                    self.assertGreaterEqual(peak["process_bytes"], whole["peak"]["process_bytes"])
                    continue
                self.assertEqual((advised[change]["peak_process_bytes"], advised[change]["peak_allocated_bytes"]),
                                 (peak["process_bytes"], peak["allocated_bytes"]))


for one in BY_HAND:
    setattr(Advice, f"test_{one}", lambda self, name=one: self.check(name))

if __name__ == "__main__":
    unittest.main()
