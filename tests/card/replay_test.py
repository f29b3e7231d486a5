"""`headroom trace replay` of what PyTorch's allocator recorded on a real H100: the same memory is taken
from the driver. Three training steps each of cases of tests/peers/transformers_cases.json, from the model
on (torch 2.11.0 for CUDA 13.0, driver 580.159.04, November 2026)."""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

RECORDED = pathlib.Path(__file__).resolve().parent / "recorded"
# torch.cuda.max_memory_reserved() at the end of each.
RESERVED = {
    "bert_base_4_32x128_bf16_sdpa_adamw_foreach_no_mask": 1038090240,
    "mistral_7b_2_window_2x1024_bf16_sdpa_adamw_fused": 6568280064,
    "qwen3_0_6b_4_4x512_bf16_sdpa_sgd_momentum_loop_nonreentrant": 6180306944,
    "resnet_18_64x160px_fp32_adamw_foreach": 1421869056,
}

headroom = sys.argv[1]
wrong = 0
for name, expected in RESERVED.items():
    with tempfile.NamedTemporaryFile(suffix=".pickle") as file:
        file.write(gzip.decompress((RECORDED / f"{name}.pickle.gz").read_bytes()))
        file.flush()
        said = subprocess.run([headroom, "trace", "replay", file.name, "--json"], check=True,
                              stdout=subprocess.PIPE).stdout
    played = json.loads(said)["reserved_peak"]["reserved_bytes"]
    print(f"{name}: {played}, on the card {expected}")
    wrong += played != expected
sys.exit(wrong != 0)
