#!/usr/bin/env bash
# Cross-compiles the kernels for Windows and runs their tests under Wine.
# On Debian: apt-get install g++-mingw-w64-x86-64-posix wine64
set -euo pipefail
cd "$(dirname "$0")/../.."

compiler=x86_64-w64-mingw32-g++-posix
for tool in "$compiler" wine cmake; do
    command -v "$tool" >/dev/null || { echo "run_windows.sh needs $tool (g++-mingw-w64-x86-64-posix, wine64)" >&2; exit 1; }
done
cmake -S . -B build/windows -DCMAKE_BUILD_TYPE=Release -DBITCLASS_PYTHON=OFF -DBITCLASS_TESTS=ON \
    -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=x86_64 -DCMAKE_CXX_COMPILER="$compiler" \
    -DCMAKE_EXE_LINKER_FLAGS=-static >/dev/null
cmake --build build/windows --parallel "$(nproc)"
WINEPREFIX="$PWD/build/windows/wine" WINEDEBUG=-all wine build/windows/test_kernels.exe
