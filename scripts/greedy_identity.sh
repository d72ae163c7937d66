#!/usr/bin/env bash
# Shows that greedy text is the same with and without drafting, for every prompt of a file, every drafter and
# K in {1, 3, 7}, 128 tokens each:
#
#   ./scripts/greedy_identity.sh PROMPTS.jsonl [FOLDER]
#
# Goes on where it stopped: FOLDER (default build/greedy_identity) keeps the result of each piece of ten prompts.
# The exit status is 1 if a prompt differed.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

PIECE=10
DRAFT_LAYERS=20
case ${1:-} in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  '') fail "no prompt file" "give one, a prompt a line" ;;
esac
[ -r "$1" ] || fail "$1 cannot be read" "give a file with a prompt a line"
FOLDER=${2:-$ROOT/build/greedy_identity}

setup "${PACELINE_PACKAGES[@]}"
build release paceline_cli
PACELINE=$ROOT/build/release/runtime/paceline
mkdir -p "$FOLDER"
split --lines $PIECE --numeric-suffixes --additional-suffix .jsonl "$1" "$FOLDER/prompts-"
[ -e "$FOLDER/draft.gguf" ] || "$PACELINE" slice "$PACELINE_MODEL" "$FOLDER/draft.gguf" --layers $DRAFT_LAYERS

# compare NAME PROMPTS OPTION...: one piece, written whole or not at all.
compare() {
  local result=$FOLDER/$1.json
  [ ! -e "$result" ] || return 0
  "$PACELINE" bench --prompts "$2" --temperature 0 --max-tokens 128 --runs 1 --seed 1 --json --quiet "${@:3}" \
    >"$result.part" || fail "$1 could not be run" "read the line above"
  mv "$result.part" "$result"
}

for prompts in "$FOLDER"/prompts-*.jsonl; do
  piece=$(basename "$prompts" .jsonl)
  for tokens in 1 3 7; do
    compare "$piece-ngram-$tokens" "$prompts" --draft ngram --draft-tokens $tokens
    compare "$piece-model-$tokens" "$prompts" --draft-model "$FOLDER/draft.gguf" --draft-tokens $tokens
    compare "$piece-early-exit-$tokens" "$prompts" --draft early-exit --draft-tokens $tokens
  done
  say "$piece: done"
done

# The last group of each result is that of all its prompts.
total=0 differing=0
for result in "$FOLDER"/prompts-*-[137].json; do
  count=$(grep -o '"num_prompts":[0-9]*' "$result" | tail -1 | cut -d: -f2)
  wrong=$(grep -o '"num_differing":[0-9]*' "$result" | tail -1 | cut -d: -f2)
  total=$((total + count)) differing=$((differing + wrong))
  [ "$wrong" = 0 ] || say "$(basename "$result"): $wrong of $count differ"
done
say "$((total - differing)) of $total texts are the same with and without drafting"
[ $differing -eq 0 ]
