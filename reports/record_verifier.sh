#!/usr/bin/env bash
# Record the verifier's page on the GPU of this machine: `bash reports/record_verifier.sh OUT [JOBS]`, about 6 minutes.
# In this order, each a file of OUT; what fails or is cut off is told and the rest is kept:
#   costs.json          seconds of `addrfrac verify rmsnorm|softmax|swiglu`, quick and full
#   corpora-cuda.json   Inductor's and Liger-Kernel's kernels (pip install --no-deps liger-kernel, or a wheel's folder on
#                       PYTHONPATH, beforehand: without it they are listed as missing)
#   selftest-cuda.json  every fixture; with FULL=1 mutants and the other protocols too; selftest.jsonl is its journal
set -uo pipefail
out=$1 jobs=${2:-8}
mkdir -p "$out"
out=$(cd "$out" && pwd)
failed=()

timed() { # NAME FLAGS...: one verification, its wall time beside its verdicts
  local name=$1; shift
  local began=$EPOCHREALTIME
  timeout 120 addrfrac verify "$name" --device cuda --quiet "$@" -o "$out/$name${*:+-quick}" >"$out/$name${*:+-quick}.txt" 2>&1
  local code=$?
  echo "$name ${*:-full} $(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }') $code" | tee -a "$out/costs.txt"
  [[ $code -le 1 ]] || failed+=("$name $*")
}

: >"$out/costs.txt"
for name in rmsnorm softmax swiglu; do
  timed "$name" --quick
  timed "$name"
done
python - "$out" <<'PY' || failed+=(costs.json)
import json, sys
from pathlib import Path
from addrfrac.verification.render import speed_words
from addrfrac.verification.store import load
out = Path(sys.argv[1])
costs = []
for line in (out / "costs.txt").read_text().splitlines():
    name, how, wall, code = line.split()
    quick = how == "--quick"
    file = out / (name + ("-quick" if quick else "")) / "verdicts.json"
    if file.exists():
        cases = [{"name": v.name, "seconds": v.seconds, "status": v.status.value, "speed": speed_words(v)} for v in load(file)]
        costs.append({"name": name, "device": "cuda", "quick": quick, "wall_s": float(wall), "cases": cases})
(out / "costs.json").write_text(json.dumps(costs, indent=1))
PY

timeout 150 python -m addrfrac.verification.corpora cuda "$out/corpora-cuda.json" "$jobs" >"$out/corpora.txt" 2>&1 ||
  failed+=(corpora)
tail -n 1 "$out/corpora.txt"

timeout "${SELFTEST_S:-900}" python -c '
import sys
from pathlib import Path
from addrfrac import verification
out, jobs, full = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"
journal = out / "selftest.jsonl"
result = verification.selftest("cuda", jobs=jobs, mutants=full, protocols=full, progress=print, journal=journal)
verification.save(result, out / "selftest-cuda.json")
print(verification.render_terminal(result, width=100))
' "$out" "$jobs" "${FULL:-0}" >"$out/selftest.txt" 2>&1 || failed+=(selftest)
tail -n 40 "$out/selftest.txt"

[[ ${#failed[@]} -eq 0 ]] || { echo "failed: ${failed[*]}"; exit 1; }
