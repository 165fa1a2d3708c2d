#!/usr/bin/env bash
# Record every published run on the GPU of this machine: `bash reports/record.sh OUT [PATTERN]`.
# One folder a run under OUT; a run that fails is named at the end and the others are kept.
set -uo pipefail
out=$1 pattern=${2:-.}
mkdir -p "$out"
failed=()

run() {
  local name=$1; shift
  [[ $name =~ $pattern ]] || return 0
  local began=$SECONDS
  if timeout 200 addrfrac profile "$@" --quiet -o "$out/$name" >"$out/$name.txt" 2>&1; then
    echo "$name: $((SECONDS - began)) s"
  else
    failed+=("$name")
    echo "$name: FAILED: $(tail -n 1 "$out/$name.txt")"
  fi
}

run resnet50-bf16 resnet50 --batch 1,16,64,256
run resnet50-fp16 resnet50 --batch 1,16,64,256 --dtype fp16
run resnet50-b64-graph resnet50 --batch 64 --execution graph
run resnet50-b64-compiled resnet50 --batch 64 --execution compiled
run resnet50-train-b64 resnet50 --mode train --batch 64 --dtype amp-bf16
run vit-l16 vit-l16
run convnext-base convnext-base
run bert-large bert-large
run bert-large-train bert-large --mode train --dtype amp-bf16
run gpt2-medium-train gpt2-medium --mode train --batch 8 --seq-len 1024 --dtype amp-bf16
run llama3-8b-prefill llama3-8b --batch 1 --seq-len 2048
run llama3-8b-prefill-extrapolated llama3-8b --batch 1 --seq-len 2048 --extrapolate
run llama3-8b-decode llama3-8b --mode decode --batch 32 --cache-len 1024
run llama3-8b-decode-extrapolated llama3-8b --mode decode --batch 32 --cache-len 1024 --extrapolate
run llama3-70b-prefill llama3-70b --batch 1 --seq-len 2048 --extrapolate
run qwen3-8b-prefill qwen3-8b --batch 1 --seq-len 2048
run mixtral-8x7b-prefill mixtral-8x7b --batch 1 --seq-len 2048
run whisper-small whisper-small
run t5-base-train t5-base --dtype amp-bf16
run dlrm-bag dlrm --embedding bag
run dlrm-fbgemm dlrm --embedding fbgemm
run dlrm-dcnv2-train-fbgemm dlrm-dcnv2 --mode train --embedding fbgemm

[[ ${#failed[@]} -eq 0 ]] || { echo "failed: ${failed[*]}"; exit 1; }
