#!/usr/bin/env bash
# Cross-compiles the kernels for Windows, with Clang and the libraries of MinGW, and runs their tests under Wine.
# (GCC destroys thread_local objects after it has freed their memory there: its bug 83562.)
# On Debian: apt-get install clang g++-mingw-w64-x86-64-posix wine64
set -euo pipefail
cd "$(dirname "$0")/../.."

for tool in clang++ x86_64-w64-mingw32-g++-posix wine cmake; do
    command -v "$tool" >/dev/null || { echo "run_windows.sh needs $tool (clang, g++-mingw-w64-x86-64-posix, wine64)" >&2; exit 1; }
done
libraries="$(dirname "$(x86_64-w64-mingw32-g++-posix -print-libgcc-file-name)")"
headers="$libraries/include/c++"
cmake -S . -B build/windows -DCMAKE_BUILD_TYPE=Release -DBITCLASS_PYTHON=OFF -DBITCLASS_TESTS=ON \
    -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=x86_64 -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY \
    -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_COMPILER_TARGET=x86_64-w64-mingw32 \
    -DCMAKE_CXX_FLAGS="-isystem $headers -isystem $headers/x86_64-w64-mingw32" \
    -DCMAKE_EXE_LINKER_FLAGS="-static -B$libraries -L$libraries" \
    -DCMAKE_CXX_STANDARD_LIBRARIES="-lstdc++ -lgcc -lgcc_eh -lpthread" >/dev/null
cmake --build build/windows --parallel "$(nproc)"
WINEPREFIX="$PWD/build/windows/wine" WINEDEBUG=-all wine build/windows/test_kernels.exe
