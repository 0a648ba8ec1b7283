#!/usr/bin/env bash
# Creates the file system of an image for prediction and serving: Python without its tests and
# tools, the packages that `bitclass serve` imports, and the system libraries they load. No
# scikit-learn, no SciPy, no shell. Usage: make_image_root.sh ROOT PYTHON WHEEL_FOLDER; fails if ROOT
# takes 150 MB or more.
set -euo pipefail
root=$1 python=$2 wheels=$3
[ ! -e "$root" ] || { echo "$root already exists" >&2; exit 1; }
prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
version=$("$python" -c 'import sys; print("python3.%d" % sys.version_info[1])')

mkdir -p "$root"
root=$(cd "$root" && pwd) # absolute, to recognise it in the output of ldd
mkdir -p "$root/app" "$root/bin" "$root/etc" "$root$prefix/bin" "$root$prefix/lib"
mkdir -m 1777 "$root/tmp"
echo "nobody:x:65534:65534:nobody:/:/" >"$root/etc/passwd"
cp "$prefix/bin/$version" "$root$prefix/bin/"
ln -s "$prefix/bin/$version" "$root/bin/python"
tar -C "$prefix/lib" -c --exclude=__pycache__ --exclude=site-packages --exclude='config-*' \
  --exclude=test --exclude=tests --exclude=idlelib --exclude=tkinter --exclude='_tkinter*' \
  --exclude=ensurepip --exclude=turtledemo --exclude=lib2to3 --exclude=pydoc_data \
  --exclude='_test*.so' --exclude='*.a' "$version" | tar -C "$root$prefix/lib" -x

install() { "$python" -m pip install --quiet --no-compile --target "$root/app" "$@"; }
install "numpy>=2.1" "safetensors>=0.4" "typer>=0.19" "rich>=13" "starlette>=0.40" "uvicorn>=0.32" "httptools>=0.6" \
  "uvloop>=0.20" "orjson>=3.10" "prometheus-client>=0.20"
install --no-deps --no-index --find-links "$wheels" bitclass
rm -rf "$root/app/bin" "$root/app/numpy/f2py" "$root"/app/numpy/_core/include
find "$root/app" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
find "$root/app" \( -name '*.pyi' -o -name '*.a' \) -delete

# Shared libraries of the system and the loader itself, at their original paths.
{ echo "$root$prefix/bin/$version"; find "$root" -name '*.so*' -type f; } | xargs ldd 2>/dev/null |
  grep -oE '/[^ ]+\.so[^ )]*' | sort -u | while read -r library; do
  case $library in "$root"*) ;; *) [ -e "$root$library" ] || cp -L --parents "$library" "$root" ;; esac
done

# Strip debug symbols, except from NumPy's libraries: they were patched, and stripping breaks them.
find "$root" \( -name 'libpython*.so*' -o -path '*/uvloop/*.so' \) -type f -exec strip --strip-unneeded {} +

megabytes=$(du -sm "$root" | cut -f1)
echo "$root: $megabytes MB"
[ "$megabytes" -lt 150 ]
