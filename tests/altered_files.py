"""Files with one alteration, otherwise well-formed: their digests are right."""

import hashlib
import json
import struct

import numpy as np
from safetensors import numpy as safetensors

#: In the place of a value: the header loses the entry.
DROPPED = object()


def split(content):
    """Table and data of a well-formed file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(table, data):
    """A file of a table, given as JSON text or as an object."""
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return sealed(struct.pack("<Q", len(text)) + text + data)


def sealed(content):
    """The same content with the right digest."""
    return content[:-32] + hashlib.sha256(content[:-32]).digest()


def with_table(content, change):
    table, data = split(content)
    change(table)
    return join(table, data)


def with_entry(content, name, **changes):
    return with_table(content, lambda table: table[name].update(changes))


def with_header(content, **changes):
    def change(table):
        header = json.loads(table["__metadata__"]["bitclass"]) | changes
        kept = {name: value for name, value in header.items() if value is not DROPPED}
        table["__metadata__"]["bitclass"] = json.dumps(kept)

    return with_table(content, change)


def with_arrays(content, change):
    """The file after `change` modified the arrays."""
    arrays = {name: array.copy() for name, array in safetensors.load(content).items()}
    change(arrays)
    return sealed(safetensors.save(arrays, metadata=split(content)[0]["__metadata__"]))


def with_data(content, name, dtype, values):
    """Replace the data of a tensor, first entries first; the rest of it stays."""

    def change(arrays):
        arrays[name].reshape(-1).view(dtype)[: len(values)] = values

    return with_arrays(content, change)


def with_labels(content, text, kind=None):
    """Other text as labels."""
    labels = np.frombuffer(text, dtype=np.uint8)
    changed = with_arrays(content, lambda arrays: arrays.update(classes=labels))
    return changed if kind is None else with_header(changed, labels=kind)


def without_tensor(content, *names):
    return with_arrays(content, lambda arrays: [arrays.pop(name) for name in names])
