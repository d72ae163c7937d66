#!/usr/bin/env bash
# Installs what is missing, builds, and runs paceline with the arguments given:
#
#   ./scripts/run.sh generate --prompt "Why is the sky blue?"
#   ./scripts/run.sh --help
#
# Without --model the default model is used, or the one in $PACELINE_MODEL. `models` lists others that have a name;
# one that is named and not there yet is downloaded.
# Downloads go to $PACELINE_CACHE_DIR (default: ~/.cache/paceline).
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

setup "${PACELINE_PACKAGES[@]}"
# A model that is asked for by name is installed first.
[[ " $* " != *[\ =]"$GEMMA_NAME "* ]] || (flock 9; install_gemma) 9>"$CACHE/lock"
build release paceline_cli
[ $# -gt 0 ] || set -- --help
exec "$ROOT/build/release/runtime/paceline" "$@"
