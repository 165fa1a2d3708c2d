#!/usr/bin/env bash
# Record DLRM-Bench on the GPU of this machine: `bash reports/record_dlrm_bench.sh OUT [SITE]`.
# SITE is a folder with fbgemm-gpu and torchrec, put on PYTHONPATH. TOTAL_S (560) limits the whole; every stage appends
# case by case, so that nothing is lost when the time is over, and a second call goes on where the first was stopped.
#   medium      all problems, uniform ids, three processes an arm; timed first, then verified, eight at a time
#   zipf        the problems with ids, medium
#   small       tables that fit in L2
#   production  tables at least 20 times the L2, one or a few processes at once
# SETS (mended), LATER_SETS (first) are solution sets; the second is timed and verified when the rest is done.
# OUT/device.json, from `addrfrac device`, gives floors and the roofline where it is there.
set -uo pipefail
out=$1 site=${2:-}
mkdir -p "$out"
out=$(cd "$out" && pwd)
[[ -n $site ]] && export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
end=$((SECONDS + ${TOTAL_S:-560}))
sets=${SETS:-mended}
floors=()
[[ -f $out/device.json ]] && floors=(--floors "$out/device.json")
failed=()

bench() { # FOLDER FLAGS...: one stage with what time is left, at most LIMIT
  local name=$1; shift
  local left=$((end - SECONDS))
  [[ $left -gt 20 ]] || { echo "no time for $name"; failed+=("$name"); return; }
  [[ -n ${LIMIT:-} && $LIMIT -lt $left ]] && left=$LIMIT
  local began=$SECONDS
  timeout -k 10 "$left" python -m addrfrac bench dlrm --device cuda --resume "${floors[@]}" -o "$out/$name" "$@" \
    >"$out/$name.txt" 2>>"$out/$name.log"
  local code=$?
  echo "== $name $*: exit $code, $((SECONDS - began)) s"
  [[ $code -eq 0 ]] || { failed+=("$name"); tail -n 3 "$out/$name.log"; }
}

share_verdicts() { # FOLDER: what is known of a solution is known at every size
  mkdir -p "$out/$1"
  [[ -f $out/medium/verdicts.jsonl ]] && cp "$out/medium/verdicts.jsonl" "$out/$1/"
}

bench medium --solutions "$sets" --size medium --indices uniform --processes 3 --no-verify
cat "$out/medium.txt"
LIMIT=${VERIFY_S:-200} bench medium --solutions "$sets" --size medium --indices uniform --processes 3 --jobs 8
cat "$out/medium.txt"
[[ ${ONLY:-} == medium ]] && exit 0
share_verdicts zipf
bench zipf --solutions "$sets" --problem 1,2,3,4,5,6,7,16 --size medium --indices zipf --processes 3 --no-verify --no-compile
share_verdicts small
bench small --solutions "$sets" --size small --processes 3 --no-verify --no-compile
share_verdicts production
bench production --solutions "$sets" --problem 1,3,4,7,2,5,6,16,17,9,13,18 --size production --processes 2 --no-verify --no-compile
bench later --solutions "${LATER_SETS:-first}" --size medium --processes 3 --jobs 8
[[ ${#failed[@]} -eq 0 ]] || { echo "not finished: ${failed[*]}"; exit 1; }
