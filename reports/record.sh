#!/usr/bin/env bash
# Record every published run on the GPU of this machine, one folder a run under OUT:
#   bash reports/record.sh OUT [PATTERN]           profiles
#   bash reports/record.sh OUT ladder [PATTERN]    the device model once, then ladders with floors and ceilings
#   bash reports/record.sh OUT ceilings [PATTERN]  ceilings above best-library, class by class and kernel by kernel
# A run that fails is named at the end and the others are kept. ROW_SECONDS limits one command (600). A row that is
# there already is passed over, so that a second call goes on where the first was stopped.
# After each row of a ladder everything needed elsewhere lies in OUT/packed.tar.gz.*, pieces of 15 MB (`PACKED=DIR`
# puts them there instead): cat packed.tar.gz.* | tar xz -C OUT
set -uo pipefail
out=$1
case ${2:-} in
  ladder | ceilings) part=$2 pattern=${3:-.} ;;
  *) part=profile pattern=${2:-.} ;;
esac
mkdir -p "$out"
failed=()

# From inside OUT, so that the command that each run keeps names no place of this machine.
record() {
  local name=$1; shift
  local began=$SECONDS
  mkdir -p "$out/$(dirname "$name")"
  if (cd "$out" && timeout "${ROW_SECONDS:-600}" addrfrac "$@" >"$name.txt" 2>&1); then
    echo "$name: $((SECONDS - began)) s"
  else
    failed+=("$name")
    echo "$name: FAILED after $((SECONDS - began)) s: $(tail -n 1 "$out/$name.txt")"
  fi
}

pack() {
  local to=${PACKED:-$out}
  rm -f "$to"/packed.tar.gz.*
  tar -C "$out" --exclude=report.html --exclude='packed.tar.gz.*' -czf - ladder $(cd "$out" && ls device.json 2>/dev/null) |
    split -b 15000000 -d -a 1 - "$to/packed.tar.gz."
}

run() {
  [[ $part == profile && $1 =~ $pattern ]] || return 0
  local name=$1; shift
  record "$name" profile "$@" --quiet -o "$name"
}

ladder() {
  [[ $part != profile && $1 =~ $pattern ]] || return 0
  local row=ladder/$1; shift
  if [[ $part == ladder && ! -f $out/$row/run.json ]]; then
    [[ -f $out/device.json ]] || record device device -o device.json
    record "$row" ladder "$@" --floors device.json -o "$row"
  elif [[ $part == ceilings && ! -f $out/$row/ceiling/run.json ]]; then
    record "$row/ceiling" ceiling "$@" --arm best-library --ladder "$row/run.json" --quiet -o "$row/ceiling"
  fi
  pack
}

run resnet50-infer-bf16 resnet50 --batch 1,16,64,256
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
run dlrm-dcnv2-train-fbgemm dlrm-dcnv2 --mode train --embedding fbgemm
run qwen3-8b-prefill qwen3-8b --batch 1 --seq-len 2048

ladder resnet50-b64-fp16 resnet50 --batch 64 --dtype fp16
ladder resnet50-b16-fp16 resnet50 --batch 16 --dtype fp16
ladder resnet50-b1-fp16 resnet50 --batch 1 --dtype fp16
ladder llama3-8b-decode llama3-8b --mode decode --batch 32 --cache-len 1024 --layers 8
ladder llama3-8b-prefill llama3-8b --batch 1 --seq-len 2048 --layers 8
ladder bert-large-fp16 bert-large --dtype fp16
ladder dlrm-bag-pooling-20 dlrm --pooling 20
ladder dlrm-fbgemm-pooling-20 dlrm --embedding fbgemm --pooling 20
ladder resnet50-train-b64 resnet50 --mode train --batch 64 --dtype amp-bf16
# 24 layers that train compile for minutes: one process an arm, and reduce-overhead, whose graph the step's own replaces,
# is left out.
ladder gpt2-medium-train gpt2-medium --mode train --batch 8 --seq-len 1024 --dtype amp-bf16 --steps 5 --processes 1 \
  --at-once 4 --skip compile-reduce-overhead
ladder dlrm-dcnv2-train dlrm-dcnv2 --mode train --embedding fbgemm
ladder mixtral-8x7b-prefill mixtral-8x7b --batch 1 --seq-len 2048 --layers 4
ladder llama3-70b-prefill llama3-70b --batch 1 --seq-len 2048 --layers 4
ladder llama3-70b-decode llama3-70b --mode decode --batch 32 --cache-len 1024 --layers 4

[[ ${#failed[@]} -eq 0 ]] || { echo "failed: ${failed[*]}"; exit 1; }
