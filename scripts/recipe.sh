#!/usr/bin/env bash
# scripts/recipe.sh RECIPE: the trainings that the Makefile names, each with the preset `robust`.
#   linear-flowers   a linear probe on Flowers-102
#   lora-flowers     adapters on Flowers-102
#   all              both on Flowers-102 and CUB-200, four at once, which share the cards by leases
#   check            the machine, and what the first recipe would need
# DATA has flowers102/ and cub200/ as published, MODEL names the model (default: vit-base, weights from
# the Hugging Face cache), GPUS the cards, ARGS more settings. Without DATA small made-up sets and a tiny
# model stand in, on simulated cards if there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/build/bin:$PATH"
out=${OUT:-build/recipes}
settings=()
if [ -z "${DATA:-}" ]; then
  DATA=build/made-up-sets
  [ -d "$DATA/vit-tiny" ] || small_sets "$DATA"
  settings=(model.config="$DATA/vit-tiny" min_gpu_memory_mb=0 epochs=10 lr=1e-2
            gpu_check_interval_seconds=1)
  echo "recipe: made-up sets and a tiny model; DATA=FOLDER names the real ones"
elif [ -n "${MODEL:-}" ]; then settings=(model.config="$MODEL"); fi
if [ -z "${GPUS:-}" ]; then
  if headroom gpus --json 2>/dev/null | grep -q '"driver":null'; then GPUS=sim:2x300MiB@recipes; else GPUS=auto; fi
fi

train() {  # train NAME KIND DATASET
  # shellcheck disable=SC2086  # ARGS are several words
  headroom train --config-name robust --gpus "$GPUS" model="$2" dataset="$3" data_dir="$DATA/$3" \
    out="$out/$1" "${settings[@]}" ${ARGS:-}
}

case ${1:-} in
  linear-flowers) train linear-flowers linear_probe flowers102 ;;
  lora-flowers) train lora-flowers lora flowers102 ;;
  all)
    mkdir -p "$out"
    jobs=()
    for job in "linear-flowers linear_probe flowers102" "lora-flowers lora flowers102" \
               "linear-cub linear_probe cub200" "lora-cub lora cub200"; do
      # shellcheck disable=SC2086  # three words
      train $job > "$out/${job%% *}.log" 2>&1 &
      jobs+=($!)
    done
    failed=0
    for job in "${jobs[@]}"; do wait "$job" || failed=$?; done
    for name in linear-flowers lora-flowers linear-cub lora-cub; do
      echo "== $name ($out/$name.log)"
      grep -E 'evaluation after|weights in|Max Allocated' "$out/$name.log" | tail -3 || tail -3 "$out/$name.log"
    done
    exit $failed ;;
  check)
    headroom --gpus "$GPUS"
    headroom doctor || true
    headroom train --config-name robust --gpus "$GPUS" --dry-run model=linear_probe dataset=flowers102 \
      data_dir="$DATA/flowers102" out="$out/check" "${settings[@]}" ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
esac
