"""Model and statistics files with one thing altered, well-formed in all else."""

import json

import numpy as np

from mutations import join, split

#: In the place of a value: the header loses the entry.
DROPPED = object()


def with_table(content, change):
    table, data = split(content)
    table = change(table) or table
    return join(table, data)


def with_entry(content, name, **changes):
    return with_table(content, lambda table: table[name].update(changes))


def with_header(content, **changes):
    def change(table):
        header = json.loads(table["__metadata__"]["bitclass"])
        for name, value in changes.items():
            header[name] = value
            if value is DROPPED:
                del header[name]
        table["__metadata__"]["bitclass"] = json.dumps(header)

    return with_table(content, change)


def with_data(content, name, dtype, values):
    """Replace the data of a tensor, first entries first; the rest of it stays."""
    table, data = split(content)
    begin, _ = table[name]["data_offsets"]
    new = np.asarray(values, dtype=dtype).tobytes()
    return join(table, data[:begin] + new + data[begin + len(new) :])


def with_labels(content, text, dtype=None):
    """Other text as labels; only `classes` may follow the tensors of bytes, which it does not."""
    table, data = split(content)
    begin, end = table["classes"]["data_offsets"]
    grown = len(text) - (end - begin)
    for name, entry in table.items():
        if name != "__metadata__" and entry["data_offsets"][0] >= end and name != "classes":
            entry["data_offsets"] = [offset + grown for offset in entry["data_offsets"]]
    table["classes"].update(shape=[len(text)], data_offsets=[begin, begin + len(text)])
    changed = join(table, data[:begin] + text + data[end:])
    return changed if dtype is None else with_header(changed, labels=dtype)


def without_tensor(content, *names):
    """A file without some tensors, well-formed in all else."""
    table, data = split(content)
    kept, parts, at = {}, [], 0
    entries = sorted(
        (entry["data_offsets"], name) for name, entry in table.items() if name != "__metadata__"
    )
    for (begin, end), name in entries:
        if name not in names:
            kept[name] = {**table[name], "data_offsets": [at, at + end - begin]}
            parts.append(data[begin:end])
            at += end - begin
    return join({"__metadata__": table["__metadata__"], **kept}, b"".join(parts))
