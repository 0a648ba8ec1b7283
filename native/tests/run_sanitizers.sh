#!/usr/bin/env bash
# Builds the kernels with sanitizers and runs their tests. Exits with an error at any finding.
# usage: run_sanitizers.sh PYTHON, an interpreter with the dependencies of the Python tests
set -euo pipefail
cd "$(dirname "$0")/../.."
python=$1

for sanitizers in address,undefined thread; do
    build="build/sanitize-${sanitizers%%,*}"
    cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBITCLASS_PYTHON=OFF -DBITCLASS_TESTS=ON \
        -DBITCLASS_SANITIZE="$sanitizers" >/dev/null
    cmake --build "$build" --parallel "$(nproc)"
    echo "== $sanitizers"
    # Address randomisation of some systems conflicts with the memory layout of ThreadSanitizer.
    setarch "$(uname -m)" --addr-no-randomize "$build/test_kernels"
done

# The Python tests of the kernels, with a separate build of the module.
site=build/sanitize-python
"$python" -m pip install --quiet --disable-pip-version-check scikit-build-core nanobind
rm -rf "$site"
"$python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --target "$site" . \
    --config-settings=build-dir=build/sanitize-module --config-settings=cmake.define.BITCLASS_SANITIZE=address,undefined
echo "== address,undefined from Python"
# Python never frees all of its memory, so leak detection is disabled.
LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" \
    ASAN_OPTIONS=detect_leaks=0 "$python" - "$site" <<'END'
import sys

import pytest

# Remove the finder of the editable installation, which takes precedence.
sys.meta_path = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
sys.path.insert(0, sys.argv[1])
import bitclass._native

assert sys.argv[1] in bitclass._native.__file__, bitclass._native.__file__
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/native", "tests/text/test_ngrams.py"]))
END
