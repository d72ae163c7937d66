#!/usr/bin/env bash
# Installs what is missing, builds, and runs paceline with the arguments given:
#
#   ./scripts/run.sh generate --prompt "Why is the sky blue?"
#   ./scripts/run.sh --help
#
# Downloads go to $PACELINE_CACHE_DIR (default: ~/.cache/paceline). Without --model the default model is used.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

mkdir -p "$CACHE"
install_packages "${PACELINE_PACKAGES[@]}"
install_libtorch
install_cuda_runtime
install_model
configure release
build release paceline_cli
export PACELINE_MODEL=${PACELINE_MODEL:-$MODEL}
exec "$ROOT/build/release/runtime/paceline" "$@"
