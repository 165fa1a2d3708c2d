#!/usr/bin/env bash
# Put kernels into every workload of the table on the GPU of this machine, one folder a row under OUT/apply:
#   bash reports/record_apply.sh OUT [PATTERN]
# What best-library is comes from OUT/ladder/NAME/run.json, the floors of reach from OUT/device.json (both left there by
# `reports/record.sh OUT ladder`); a row whose ladder is not there goes into the eager model and says so. A row that is
# there already is passed over, a row that fails is named at the end. ROW_SECONDS limits one row (580), PROCESSES the
# processes an arm (3). Verdicts of sites are kept in OUT/cache: left there, they need not be found again on a like GPU.
# What a row that was cut off was at stands in OUT/apply/NAME.txt.
set -uo pipefail
out=$1 pattern=${2:-.}
mkdir -p "$out/apply"
failed=()

# From inside OUT, so that the command that each run keeps names no place of this machine.
apply() {
  local name=$1 ladder=ladder/$2; shift 2
  [[ $name =~ $pattern && ! -f $out/apply/$name/run.json ]] || return 0
  local base=() floors=() began=$SECONDS
  if [[ -f $out/$ladder/run.json ]]; then
    base=(--base best-library --ladder "$ladder/run.json")
  else
    echo "$name: no $ladder/run.json, so kernels go into the eager model"
  fi
  [[ -f $out/device.json ]] && floors=(--floors device.json)
  if (cd "$out" && ADDRFRAC_CACHE=${ADDRFRAC_CACHE:-$PWD/cache} timeout "${ROW_SECONDS:-580}" addrfrac apply "$@" "${base[@]}" \
    "${floors[@]}" --processes "${PROCESSES:-3}" -o "apply/$name" >"apply/$name.txt" 2>&1); then
    echo "$name: $((SECONDS - began)) s"
  else
    failed+=("$name")
    echo "$name: FAILED after $((SECONDS - began)) s: $(tail -n 1 "$out/apply/$name.txt")"
  fi
}

apply resnet50-b64-fp16 resnet50-b64-fp16 resnet50 --batch 64 --dtype fp16
apply resnet50-b16-fp16 resnet50-b16-fp16 resnet50 --batch 16 --dtype fp16
apply llama3-8b-prefill llama3-8b-prefill llama3-8b --batch 1 --seq-len 2048 --layers 8
apply llama3-8b-decode llama3-8b-decode llama3-8b --mode decode --batch 32 --cache-len 1024 --layers 8
apply llama3-70b-prefill llama3-70b-prefill llama3-70b --batch 1 --seq-len 2048 --layers 4
apply llama3-70b-decode llama3-70b-decode llama3-70b --mode decode --batch 32 --cache-len 1024 --layers 4
apply dlrm-pooling-20 dlrm-bag-pooling-20 dlrm --batch 8192 --pooling 20
apply gpt2-medium-train gpt2-medium-train gpt2-medium --mode train --batch 8 --seq-len 1024 --dtype amp-bf16
apply bert-large-fp16 bert-large-fp16 bert-large --batch 32 --seq-len 384 --dtype fp16
apply resnet50-train-b64 resnet50-train-b64 resnet50 --mode train --batch 64 --dtype amp-bf16
apply mixtral-8x7b-prefill mixtral-8x7b-prefill mixtral-8x7b --batch 1 --seq-len 2048 --layers 4
apply dlrm-dcnv2-train dlrm-dcnv2-train dlrm-dcnv2 --mode train --embedding fbgemm

[[ ${#failed[@]} -eq 0 ]] || { echo "failed: ${failed[*]}"; exit 1; }
