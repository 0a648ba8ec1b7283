"""Random damage to files, for the tests and for benchmarks/fuzz_models.py."""

import json
import struct

ABSURD = [
    *(0, 1, -1, 2, 7, 8, 9, 127, 255, 256, 4095, 2**15, 2**16, 2**31 - 1, 2**31, 2**32, 2**40),
    *(2**48, 2**48 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, 10**400, -(2**63)),
    *(0.5, 1.0, 1e308, 5e-324, -0.0, True, False, None, "", "a", "F32", "F64", "I8", "U8"),
    *("|O", "<U1", "<U999999999", "<M8[ns]", "<M8[999999999as]", "<f16", "<c16", "|V8", "<i8,<i8"),
    *("model", "statistics", [], {}, [[]], [0], [0, 0], [1, 2, 3], [2**48, 2**48], [0, 2**62]),
    *({"a": 1}, {"pairs": []}, {"pairs": 3}, {"pairs": [[1, 2]]}),
]


def split(content):
    """Table and data of a well-formed file."""
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(table, data):
    """A file of a table, given as JSON text or as an object."""
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + data


def mutated(rng, content):
    """A damaged copy of a well-formed file, and a description of the damage."""
    ways = (
        flip_bits, flip_header_bits, truncate, insert, wrong_length, table_value, table_value,
        header_value, header_value, header_value, repeat_key, drop_key, data_numbers, data_numbers,
        shift_tensors,
    )  # fmt: skip
    way = ways[rng.integers(len(ways))]
    spoiled = way(rng, content)
    if rng.random() < 0.1:
        spoiled = flip_bits(rng, spoiled)
    return spoiled, way.__name__


def flip_bits(rng, content):
    spoiled = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if spoiled:
            spoiled[rng.integers(len(spoiled))] ^= 1 << int(rng.integers(8))
    return bytes(spoiled)


def flip_header_bits(rng, content):
    (length,) = struct.unpack("<Q", content[:8])
    return flip_bits(rng, content[: 8 + length]) + content[8 + length :]


def truncate(rng, content):
    return content[: rng.integers(len(content))]


def insert(rng, content):
    begin = int(rng.integers(len(content)))
    return content[:begin] + rng.bytes(int(rng.integers(1, 20))) + content[begin:]


def wrong_length(rng, content):
    (length,) = struct.unpack("<Q", content[:8])
    other = [0, 1, length - 1, length + 1, length + 8, len(content), len(content) - 8, 4 << 20,
             2**31, 2**32 - 1, 2**48, 2**63, 2**64 - 1]  # fmt: skip
    return struct.pack("<Q", other[rng.integers(len(other))]) + content[8:]


def table_value(rng, content):
    table, data = split(content)
    _set_somewhere(rng, table)
    return join(table, data)


def header_value(rng, content):
    table, data = split(content)
    header = json.loads(table["__metadata__"]["bitclass"])
    _set_somewhere(rng, header)
    table["__metadata__"]["bitclass"] = json.dumps(header)
    return join(table, data)


def drop_key(rng, content):
    table, data = split(content)
    entry = list(table.values())[rng.integers(len(table))] if rng.random() < 0.5 else table
    entry.pop(list(entry)[rng.integers(len(entry))])
    return join(table, data)


def repeat_key(rng, content):
    (length,) = struct.unpack("<Q", content[:8])
    text = content[8 : 8 + length]
    table, data = split(content)
    name = list(table)[rng.integers(len(table))]
    again = json.dumps(name).encode() + b":" + json.dumps(table[name]).encode()
    return join(b"{" + again + b"," + text[1:], data)


def data_numbers(rng, content):
    """Absurd numbers inside a tensor."""
    table, data = split(content)
    spoiled = bytearray(data)
    names = [name for name in table if name != "__metadata__"]
    begin, end = table[names[rng.integers(len(names))]]["data_offsets"]
    numbers = [struct.pack("<d", v) for v in (float("nan"), float("inf"), -1e308, 5e-324, 0.0)]
    numbers += [struct.pack("<f", v) for v in (float("nan"), float("-inf"), 3e38, 1e-45, 0.0)]
    numbers += [b"\x80", b"\xff", b"\xff" * 8, b"\0" * 8, rng.bytes(8), b'"', b"[", b",", b"9" * 50]
    number = numbers[rng.integers(len(numbers))]
    at = begin + int(rng.integers(max(1, (end - begin) // len(number)))) * len(number)
    spoiled[at : at + len(number)] = number[: max(0, end - at)]
    return join(table, bytes(spoiled))


def shift_tensors(rng, content):
    """Offsets that overlap or leave gaps, and shapes that still fit their own offsets."""
    table, data = split(content)
    names = [name for name in table if name != "__metadata__"]
    entry = table[names[rng.integers(len(names))]]
    if rng.random() < 0.5:
        by = int(rng.integers(-64, 65))
        entry["data_offsets"] = [offset + by for offset in entry["data_offsets"]]
    elif rng.random() < 0.5:
        entry["shape"] = entry["shape"][::-1]
    else:
        entry["shape"] = [1, *entry["shape"]] if rng.random() < 0.5 else [0, 2**40]
    return join(table, data)


def _set_somewhere(rng, tree):
    """Put an absurd value somewhere into a tree of dicts and lists."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        if not keys:
            return
        key = keys[rng.integers(len(keys))]
        below = tree[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.8:
            tree = below
            continue
        tree[key] = ABSURD[rng.integers(len(ABSURD))]
        return
