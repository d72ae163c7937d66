#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every check:
#
#   ./scripts/test.sh          layers, unit and end-to-end tests, sanitizers, fuzzing (30 s a target), benchmarks
#   ./scripts/test.sh --all    adds what is long: greedy identity on Spec-Bench prompts, fuzzing for 10 minutes
#
# PACELINE_SPEC_BENCH names a file of Spec-Bench questions (JSONL); without it what measures on them is skipped.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ALL=no
case ${1:-} in
  '') ;;
  --all) ALL=yes ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
  *) fail "unknown argument '$1'" "use no argument, --all or --help" ;;
esac

SUMMARY=()
FAILED=no

# stage NAME COMMAND...: runs it, times it, goes on if it fails.
stage() {
  local name=$1 start=$SECONDS result=passed
  shift
  say "== $name"
  "$@" || { result=FAILED; FAILED=yes; }
  SUMMARY+=("$(printf '%-44s %5d s  %s' "$name" $((SECONDS - start)) "$result")")
}

run_ctest() {
  local preset=$1
  shift
  (cd "$ROOT" && ctest --preset "$preset" "$@") | tee "$ROOT/build/$preset.test.log"
  local result=${PIPESTATUS[0]}
  grep -hE 'SKIPPED:' "$ROOT/build/$preset/Testing/Temporary/LastTest.log" | sort -u |
    sed 's/^/[paceline] /' >&2 || true
  return "$result"
}

# fuzz TARGET SECONDS SEEDS...: with a corpus of its own, thrown away afterwards.
fuzz() {
  local target=$1 seconds=$2 corpus
  shift 2
  corpus=$(mktemp -d)
  "$ROOT/build/fuzz/tests/fuzz/$target" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$ROOT/build/fuzz/" "$corpus" "$@" 2>&1 | tail -8
  local result=${PIPESTATUS[0]}
  rm -rf "$corpus"
  return "$result"
}

benchmarks() {
  local bench
  for bench in sampling_bench verify_bench; do
    "$ROOT/build/release/bench/$bench" --benchmark_min_time=0.01 || return 1
  done
}

mkdir -p "$CACHE"
install_packages "${PACELINE_PACKAGES[@]}" "${PACELINE_TEST_PACKAGES[@]}"
install_libtorch
install_cuda_runtime
install_model
export PACELINE_MODEL=${PACELINE_MODEL:-$MODEL}

stage "layers point downwards" "$ROOT/scripts/check_layers.sh"
configure release
stage "build release" build release all
stage "tests, release" run_ctest release
configure asan
stage "build asan" build asan all
stage "tests, address and undefined sanitizers" run_ctest asan
configure fuzz
stage "build fuzz" build fuzz all
FUZZ_SECONDS=30
[ "$ALL" = yes ] && FUZZ_SECONDS=600
stage "fuzz GGUF reader" fuzz gguf_fuzz $FUZZ_SECONDS "$ROOT/tests/data/llama"
stage "fuzz JSON readers" fuzz json_fuzz $FUZZ_SECONDS
stage "fuzz tokenizer" fuzz tokenizer_fuzz $FUZZ_SECONDS
stage "benchmarks run" benchmarks
if [ "$ALL" = yes ]; then
  stage "greedy text on Spec-Bench" "$ROOT/build/release/tests/real_model_test" \
    --gtest_also_run_disabled_tests --gtest_filter='*SpecBench*'
fi

printf '\n[paceline] summary\n' >&2
printf '[paceline]   %s\n' "${SUMMARY[@]}" >&2
[ "$FAILED" = no ] || fail "a stage failed" "see its output above"
say "all passed"
