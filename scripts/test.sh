#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every check:
#
#   ./scripts/test.sh          layers, unit and end-to-end tests, sanitizers, fuzzing (30 s a target), benchmarks
#   ./scripts/test.sh --all    adds greedy identity on Spec-Bench prompts and the torch operators from Python
#                              (downloads 3 GB, once), and fuzzes for 120 s a target
#
# PACELINE_SPEC_BENCH names a file of Spec-Bench questions (JSONL); without it what measures on them is skipped.
# A failed stage does not stop the others. The exit status is 1 if any failed.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ALL=no
FUZZ_SECONDS=30
case ${1:-} in
  '') ;;
  --all) ALL=yes FUZZ_SECONDS=120 ;;
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  *) fail "unknown argument '$1'" "use no argument, --all or --help" ;;
esac

declare -A RESULT
SUMMARY=()
FAILED=no

# stage NAME NEEDED COMMAND...: runs and times it, unless the stage NEEDED ('' for none) did not pass.
stage() {
  local name=$1 needed=$2 start=$SECONDS status=0
  shift 2
  if [ -n "$needed" ] && [ "${RESULT[$needed]}" != passed ]; then
    RESULT[$name]='not run'
  else
    say "== $name"
    # Not `(...) || status=$?`: on the left of || nothing inside would stop at its first error.
    set +e
    (set -e; trap 'exit 130' INT; "$@")
    status=$?
    set -e
    [ $status -ne 130 ] || exit 130
    RESULT[$name]=passed
    [ $status -eq 0 ] || RESULT[$name]=FAILED
  fi
  [ "${RESULT[$name]}" = passed ] || FAILED=yes
  SUMMARY+=("$(printf '%-40s %5d s  %s' "$name" $((SECONDS - start)) "${RESULT[$name]}")")
}

run_ctest() { (cd "$ROOT" && ctest --preset "$1"); }

spec_bench() {
  "$ROOT/build/release/tests/real_model_test" --gtest_also_run_disabled_tests --gtest_filter='*SpecBench*' |
    tee "$ROOT/build/spec_bench.log"
}

python_operators() {
  install_python_torch
  PYTHONPATH=$PYTHON_TORCH python3 "$ROOT/tests/python/torch_ops_test.py" \
    "$ROOT/build/release/batch/libpaceline_ops.so"
}

# Lines `test: reason` of the tests in a log of GoogleTest that were skipped.
skipped_tests() {
  [ ! -e "$1" ] || awk '/: Skipped$/ { getline reason }
    /^\[  SKIPPED \] .* ms\)$/ { print $4 ": " reason; reason = "" }' "$1"
}

# fuzz TARGET MAX_BYTES SEED...: with a corpus of its own, thrown away afterwards.
fuzz() {
  local target=$1 max_bytes=$2 corpus=$ROOT/build/asan/$1.corpus log=$ROOT/build/asan/$1.log status=0
  shift 2
  rm -rf "$corpus"
  mkdir "$corpus"
  cp "$@" "$corpus"
  "$ROOT/build/asan/tests/fuzz/$target" -max_total_time="$FUZZ_SECONDS" -max_len="$max_bytes" -rss_limit_mb=2048 \
    -timeout=10 -print_final_stats=1 -artifact_prefix="$ROOT/build/asan/$target-" "$corpus" 2>&1 |
    follow "$log" || status=$?
  rm -rf "$corpus"
  if [ $status -ne 0 ]; then tail -40 "$log" >&2; return $status; fi
  grep -E 'number_of_executed_units|peak_rss' "$log" >&2
}

benchmarks() {
  local bench
  for bench in "$ROOT"/build/release/bench/*_bench; do
    "$bench" --benchmark_min_time=0.01
  done
}

setup "${PACELINE_PACKAGES[@]}" "${PACELINE_TEST_PACKAGES[@]}"
rm -f "$ROOT"/build/*/Testing/Temporary/LastTest.log "$ROOT/build/spec_bench.log"

DATA=$ROOT/tests/data
SEEDS=$ROOT/build/seeds
mkdir -p "$SEEDS"
split -l 1 "$DATA/demo_prompts.jsonl" "$SEEDS/prompt-"
stage 'layers point downwards' '' "$ROOT/scripts/check_layers.sh"
stage 'build release' '' build release all
stage 'tests, release' 'build release' run_ctest release
stage 'build asan' '' build asan all
stage 'tests, address and undefined sanitizers' 'build asan' run_ctest asan
stage 'fuzz the GGUF reader' 'build asan' fuzz gguf_fuzz 131072 "$DATA"/models/llama/model-q4_?.gguf
stage 'fuzz the prompt reader' 'build asan' fuzz json_fuzz 4096 "$SEEDS"/prompt-*
stage 'fuzz the tokenizer' 'build asan' fuzz tokenizer_fuzz 4096 "$SEEDS"/prompt-*
stage 'fuzz arrays of a batch' 'build asan' fuzz batch_fuzz 1024 "$SEEDS"/prompt-*
stage 'benchmarks run' 'build release' benchmarks
if [ "$ALL" = yes ]; then
  stage 'torch operators from Python' 'build release' python_operators
  stage 'greedy text on Spec-Bench' 'build release' spec_bench
fi

{
  printf '\n[paceline] summary\n'
  printf '[paceline]   %s\n' "${SUMMARY[@]}"
  for log in "$ROOT"/build/{release,asan}/Testing/Temporary/LastTest.log "$ROOT/build/spec_bench.log"; do
    skipped_tests "$log"
  done | sort -u | sed 's/^/[paceline] SKIPPED /'
} >&2
[ "$FAILED" = no ] || fail "a stage failed" "see its output above"
say "all passed"
