#!/usr/bin/env bash
# Predicts inside the file system of the image. Usage: try_image_root.sh ROOT (as root)
set -euo pipefail
root=$1
run() { env -i PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1 /usr/sbin/chroot --userspec=65534:65534 "$root" /bin/python "$@"; }
run -m bitclass --version
run -c '
import sys
import numpy as np
import bitclass
from bitclass.hash_function import HashFunction
from bitclass.model import PackedModel
from bitclass.storage import save

model = PackedModel(
    np.array(["left", "right"]), np.array([[0], [1]], dtype=np.uint8),
    HashFunction(np.ones((1, 1), dtype=np.float32), np.zeros(1)),
)
save("/tmp/model.safetensors", model)
found = bitclass.load("/tmp/model.safetensors", memory_map=True).predict(np.array([[-3.0], [2.0]]))
assert found.tolist() == ["left", "right"], found
assert not {"sklearn", "scipy"} & set(sys.modules)
'
run -m bitclass inspect /tmp/model.safetensors >/dev/null
rm -f "$root/tmp/model.safetensors"
echo "predicted inside $root"
