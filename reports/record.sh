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
  # From inside, so that the command that each run keeps names no place of this machine.
  if (cd "$out" && timeout 200 addrfrac profile "$@" --quiet -o "$name" >"$name.txt" 2>&1); then
    echo "$name: $((SECONDS - began)) s"
  else
    failed+=("$name")
    echo "$name: FAILED: $(tail -n 1 "$out/$name.txt")"
  fi
}

run resnet50-infer-bf16 resnet50 --batch 1,16,64,256
run resnet50-infer-fp16 resnet50 --batch 1,16,64,256 --dtype fp16
run resnet50-infer-bf16-graph resnet50 --batch 64 --execution graph
run resnet50-infer-bf16-compiled resnet50 --batch 64 --execution compiled
run resnet50-train resnet50 --mode train --batch 64 --dtype amp-bf16
run vit-l16 vit-l16
run bert-large bert-large
run gpt2-medium-train gpt2-medium --mode train --batch 8 --seq-len 1024 --dtype amp-bf16
run llama3-8b-prefill llama3-8b --batch 1 --seq-len 2048
run llama3-8b-prefill-extrapolated llama3-8b --batch 1 --seq-len 2048 --extrapolate
run llama3-8b-decode llama3-8b --mode decode --batch 32 --cache-len 1024
run llama3-8b-decode-extrapolated llama3-8b --mode decode --batch 32 --cache-len 1024 --extrapolate
run llama3-70b-prefill llama3-70b --batch 1 --seq-len 2048 --extrapolate
run mixtral-8x7b-prefill mixtral-8x7b --batch 1 --seq-len 2048
run dlrm-infer-bag dlrm
run dlrm-infer-fbgemm dlrm --embedding fbgemm
run dlrm-infer-bag-pooling-20 dlrm --pooling 20
run dlrm-infer-fbgemm-pooling-20 dlrm --embedding fbgemm --pooling 20
run dlrm-dcnv2-train-fbgemm dlrm-dcnv2 --mode train --embedding fbgemm
run qwen3-8b-prefill qwen3-8b --batch 1 --seq-len 2048

[[ ${#failed[@]} -eq 0 ]] || { echo "failed: ${failed[*]}"; exit 1; }
