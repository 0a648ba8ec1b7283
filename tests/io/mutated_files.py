"""Damaged files: bytes flipped, cut off, removed or repeated."""

from __future__ import annotations

from bitclass.io import DataFileError, open_rows


def mutated(content, rng):
    """Damage the bytes of a file, often near its ends, where headers are."""
    changed = bytearray(content)
    if rng.random() < 0.3:
        return bytes(changed[: rng.integers(0, len(changed))])
    for _ in range(int(rng.choice([1, 2, 8]))):
        at = int(rng.integers(0, len(changed)))
        if rng.random() < 0.5:
            at = int(rng.integers(0, min(256, len(changed))))
            at = at if rng.random() < 0.5 else len(changed) - 1 - at
        match int(rng.integers(0, 3)):
            case 0:
                changed[at] ^= 1 << int(rng.integers(0, 8))
            case 1:
                changed[at : at + 4] = rng.bytes(4)
            case _:
                part = changed[at : at + int(rng.integers(1, 32))]
                changed[at : at + len(part)] = part * 2 if rng.random() < 0.5 else b""
    return bytes(changed)


def read_all(paths, options):
    """Read all rows: 'valid', or 'refused' by one line; any other error is raised."""
    try:
        rows = open_rows(paths, **options)
        at = 0
        for batch in rows.batches(0, 7):
            assert batch.X.shape == (min(7, rows.n_rows - at), rows.n_features)
            assert batch.labels is None or batch.labels.shape == (batch.X.shape[0],)
            assert batch.X.dtype == rows.dtype
            at += batch.X.shape[0]
            if at > 1000:  # a header that claims very many rows
                break
    except DataFileError as error:
        message = str(error)
        assert "\n" not in message, message
        assert len(message) < 2000, message
        return "refused"
    return "valid"
