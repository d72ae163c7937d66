#!/usr/bin/env bash
# Installs what is missing: Debian packages, libtorch, two libraries of the CUDA runtime, a small model.
#
#   ./scripts/setup.sh            what run.sh needs (it does this by itself)
#   ./scripts/setup.sh --tests    and what test.sh needs: a second compiler for fuzzing
#
# Downloads go to $PACELINE_CACHE_DIR (default: ~/.cache/paceline); what is there already is left alone.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=("${PACELINE_PACKAGES[@]}")
case ${1:-} in
  '') ;;
  --tests) packages+=("${PACELINE_TEST_PACKAGES[@]}") ;;
  -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit ;;
  *) fail "unknown argument '$1'" "use no argument, --tests or --help" ;;
esac

VERBOSE=yes
setup "${packages[@]}"
say "ready; files are in $CACHE"
