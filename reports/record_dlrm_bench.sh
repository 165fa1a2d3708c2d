#!/usr/bin/env bash
# Record DLRM-Bench on the GPU of this machine: `bash reports/record_dlrm_bench.sh OUT [SITE]`.
# SITE is a folder with fbgemm-gpu and torchrec, put on PYTHONPATH. TOTAL_S (560) limits the whole; every stage appends
# case by case, so that nothing is lost when the time is over, and a second call goes on where the first was stopped.
#   medium      all problems, uniform ids, three processes an arm; timed first, then verified, eight at a time
#   production  tables at least 20 times the L2, one or a few processes at once
#   zipf        the problems with ids, medium
#   small       tables that fit in L2
# SETS (first,tuned) are solution sets; the baselines of a problem are prepared once for all of them. MORE_SETS (tuned)
# are those of the other stages. TIME_S (320) and VERIFY_S (200) limit the two halves of the medium stage, PROBLEMS
# names some of the problems, ONLY=medium leaves the rest out. DEVICE=cpu SIZE=tiny tries the whole without a GPU.
# OUT/device.json, from `addrfrac device`, gives floors and the roofline where it is there.
set -uo pipefail
out=$1 site=${2:-}
mkdir -p "$out"
out=$(cd "$out" && pwd)
[[ -n $site ]] && export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONUNBUFFERED=1
end=$((SECONDS + ${TOTAL_S:-560}))
sets=${SETS:-first,tuned} more=${MORE_SETS:-tuned}
device=${DEVICE:-cuda} size=${SIZE:-medium} problems=${PROBLEMS:+--problem $PROBLEMS}
floors=()
[[ -f $out/device.json ]] && floors=(--floors "$out/device.json")
failed=()

bench() { # FOLDER FLAGS...: one stage with what time is left, at most LIMIT
  local name=$1; shift
  local left=$((end - SECONDS))
  [[ $left -gt 20 ]] || { echo "no time for $name"; failed+=("$name"); return; }
  [[ -n ${LIMIT:-} && $LIMIT -lt $left ]] && left=$LIMIT
  local began=$SECONDS
  timeout -k 10 "$left" python -m addrfrac bench dlrm --device "$device" --resume "${floors[@]}" -o "$out/$name" "$@" \
    >"$out/$name.txt" 2>>"$out/$name.log"
  local code=$?
  echo "== $name $*: exit $code, $((SECONDS - began)) s"
  [[ $code -eq 0 ]] || { failed+=("$name"); tail -n 3 "$out/$name.log"; }
}

share_verdicts() { # FOLDER: what is known of a solution is known at every size
  mkdir -p "$out/$1"
  [[ -f $out/medium/verdicts.jsonl ]] && cp "$out/medium/verdicts.jsonl" "$out/$1/"
}

medium=(--solutions "$sets" --size "$size" --indices uniform --processes "${PROCESSES:-3}")
# shellcheck disable=SC2086 # an empty choice of problems is no argument
LIMIT=${TIME_S:-320} bench medium "${medium[@]}" $problems --no-verify
cat "$out/medium.txt"
# shellcheck disable=SC2086
LIMIT=${VERIFY_S:-200} bench medium "${medium[@]}" $problems --jobs "${JOBS:-8}"
# shellcheck disable=SC2086
bench medium "${medium[@]}" $problems --no-verify # times and verdicts together, and what was not timed yet
cat "$out/medium.txt"
if [[ ${ONLY:-} != medium ]]; then
  share_verdicts production
  bench production --solutions "$more" --problem 1,3,4,7,2,5,6,16,17,9,13,18 --size production --processes 2 --no-verify --no-compile
  share_verdicts zipf
  bench zipf --solutions "$more" --problem 1,2,3,4,5,6,7,16 --size medium --indices zipf --processes 3 --no-verify --no-compile
  share_verdicts small
  bench small --solutions "$more" --size small --processes 3 --no-verify --no-compile
fi
[[ ${#failed[@]} -eq 0 ]] || { echo "not finished: ${failed[*]}"; exit 1; }
