#!/usr/bin/env bash
# Cross-compiles the kernels for 64-bit ARM and runs their tests under emulation.
# On Debian: apt-get install g++-aarch64-linux-gnu qemu-user
set -euo pipefail
cd "$(dirname "$0")/../.."

for tool in aarch64-linux-gnu-g++ qemu-aarch64 cmake; do
    command -v "$tool" >/dev/null || { echo "run_neon.sh needs $tool (g++-aarch64-linux-gnu, qemu-user)" >&2; exit 1; }
done
cmake -S . -B build/neon -DCMAKE_BUILD_TYPE=Release -DBITCLASS_PYTHON=OFF -DBITCLASS_TESTS=ON \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ >/dev/null
cmake --build build/neon --parallel "$(nproc)"
qemu-aarch64 -L /usr/aarch64-linux-gnu build/neon/test_kernels | tee build/neon/levels.txt
grep -q '^neon: ok$' build/neon/levels.txt
