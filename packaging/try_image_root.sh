#!/usr/bin/env bash
# Tests prediction and serving in the file system of the image. Usage: try_image_root.sh ROOT (as root)
set -euo pipefail
root=$(cd "$1" && pwd)
service=
trap '[ -z "$service" ] || kill "$service" 2>/dev/null; rm -f "$root/tmp/model.safetensors" "$root/tmp/served"' EXIT
python=(env -i PYTHONPATH=/app PYTHONDONTWRITEBYTECODE=1
  /usr/sbin/chroot --userspec=65534:65534 "$root" /bin/python)
"${python[@]}" -m bitclass --version
"${python[@]}" -c '
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
"${python[@]}" -m bitclass inspect /tmp/model.safetensors >/dev/null

# As in the image, except for the network: start two workers, send a request, and stop.
"${python[@]}" -m bitclass serve /tmp/model.safetensors --port 0 --workers 2 >"$root/tmp/served" &
service=$!
for _ in $(seq 100); do
  grep -q http "$root/tmp/served" && break
  sleep 0.1
done
address=$(grep -oE 'http://[0-9.:]+' "$root/tmp/served")
answer=$(curl --silent --show-error --fail "$address/predict?top=1" --data '{"rows": [[-3], [2]]}')
case $answer in *'"labels":["left","right"]'*) ;; *) echo "wrong answer: $answer" >&2; exit 1 ;; esac
curl --silent --show-error --fail --output /dev/null "$address/"
kill "$service"
wait "$service"
service=
echo "predicted and served inside $root"
