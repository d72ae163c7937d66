#!/usr/bin/env bash
# Installs what is missing, builds, and runs paceline with the arguments given:
#
#   ./scripts/run.sh generate --prompt "Why is the sky blue?"
#   ./scripts/run.sh --help
#
# Without --model the default model is used, or the one in $PACELINE_MODEL.
# Downloads go to $PACELINE_CACHE_DIR (default: ~/.cache/paceline).
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

setup "${PACELINE_PACKAGES[@]}"
build release paceline_cli
[ $# -gt 0 ] || set -- --help
exec "$ROOT/build/release/runtime/paceline" "$@"
