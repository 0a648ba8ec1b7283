"""Model and statistics files with one alteration, otherwise well-formed."""

import json

import numpy as np
from safetensors import numpy as safetensors

from mutations import join, split

#: In the place of a value: the header loses the entry.
DROPPED = object()


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
    """The file that safetensors writes after `change` modified the arrays."""
    arrays = {name: array.copy() for name, array in safetensors.load(content).items()}
    change(arrays)
    return safetensors.save(arrays, metadata=split(content)[0]["__metadata__"])


def with_data(content, name, dtype, values):
    """Replace the data of a tensor, first entries first; the rest of it stays."""

    def change(arrays):
        arrays[name].reshape(-1).view(dtype)[: len(values)] = values

    return with_arrays(content, change)


def with_labels(content, text, dtype=None):
    """Other text as labels."""
    labels = np.frombuffer(text, dtype=np.uint8)
    changed = with_arrays(content, lambda arrays: arrays.update(classes=labels))
    return changed if dtype is None else with_header(changed, labels=dtype)


def without_tensor(content, *names):
    return with_arrays(content, lambda arrays: [arrays.pop(name) for name in names])
