"""Small image datasets in the exact formats of the published ones."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile

import numpy as np
from scipy.io import savemat


def python2_pickle(value):
    """As cPickle of Python 2 wrote it in protocol 2, text as its 8-bit strings."""
    return b"\x80\x02" + pickled(value) + b"."


def pickled(value):
    if isinstance(value, dict):
        return b"}(" + b"".join(pickled(part) for pair in value.items() for part in pair) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(pickled, value)) + b"e"
    if isinstance(value, bytes):
        return b"T" + struct.pack("<I", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    # An array, as pickled by NumPy under Python 2.
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85"
    shape = b"".join(map(pickled, value.shape)) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + pickled(b"u1") + b"K\x00K\x01\x87R(K\x03" + pickled(b"|")
    dtype += b"NNN" + 2 * pickled(-1) + b"K\x00tb"
    state = b"(K\x01" + shape + dtype + b"\x89" + pickled(value.tobytes()) + b"tb"
    return start + pickled(b"b") + b"\x87R" + state


def tar_bytes(files):
    """An uncompressed tar file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def cifar_rows(n, n_classes, seed):
    """Pixels (n, 3072) and classes (n,), cycling through the classes."""
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)
    return pixels, [(row + seed) % n_classes for row in range(n)]


CIFAR10_CLASSES = b"airplane automobile bird cat deer dog frog horse ship truck".split()


def cifar10_python(n=20):
    files = {}
    for batch in range(1, 7):
        name = f"data_batch_{batch}" if batch < 6 else "test_batch"
        pixels, labels = cifar_rows(n, 10, batch)
        content = {b"batch_label": b"batch %d" % batch, b"labels": labels, b"data": pixels}
        files[f"cifar-10-batches-py/{name}"] = python2_pickle(content)
    meta = {b"num_cases_per_batch": n, b"label_names": CIFAR10_CLASSES}
    return files | {"cifar-10-batches-py/batches.meta": python2_pickle(meta)}


def sun397(counts):
    """Names of files of SUN397."""
    return [f"SUN397/{name[0]}/{name}/sun_{i:05d}.jpg" for name, n in counts for i in range(n)]


WNIDS = ("n01440764", "n01443537", "n01484850")


def ilsvrc_train(counts=(3, 2, 4)):
    classes = {}
    for wnid, n in zip(WNIDS, counts, strict=True):
        images = {f"{wnid}_{row}.JPEG": f"{wnid} {row}".encode() for row in range(n)}
        classes[f"{wnid}.tar"] = tar_bytes(images)
    return tar_bytes(classes)


def ilsvrc_validation(n=5):
    names = [f"ILSVRC2012_val_{row:08d}.JPEG" for row in range(1, n + 1)]
    return tar_bytes({name: name.encode() for name in reversed(names)})


def devkit(truth=(3, 1, 2, 2, 1)):
    """Synsets as in the kit, which has 1860 entries, and classes of validation images."""
    fields = ("ILSVRC2012_ID", "WNID", "words", "num_children", "num_train_images")
    entries = [
        (1.0, WNIDS[1], "goldfish, Carassius auratus", 0.0, 2.0),
        (2.0, WNIDS[2], "great white shark", 0.0, 4.0),
        (3.0, WNIDS[0], "tench, Tinca tinca", 0.0, 3.0),
        (1001.0, "n01317541", "fish", 3.0, 0.0),
    ]
    synsets = np.zeros((len(entries), 1), dtype=[(field, object) for field in fields])
    for row, entry in enumerate(entries):
        synsets[row, 0] = entry
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets}, do_compression=True)
    root = "ILSVRC2012_devkit_t12/data"
    lines = "".join(f"{number}\n" for number in truth).encode()
    return {
        f"{root}/meta.mat": meta.getvalue(),
        f"{root}/ILSVRC2012_validation_ground_truth.txt": lines,
    }


def tiny_imagenet(n=3):
    root = "tiny-imagenet-200"
    files = {f"{root}/wnids.txt": "\n".join(WNIDS).encode()}
    for wnid in WNIDS:
        for row in range(n):
            files[f"{root}/train/{wnid}/images/{wnid}_{row}.JPEG"] = f"{wnid} {row}".encode()
        files[f"{root}/train/{wnid}/{wnid}_boxes.txt"] = f"{wnid}_0.JPEG\t0\t10\t63\t58\n".encode()
    lines = []
    for row in range(5):
        files[f"{root}/val/images/val_{row}.JPEG"] = f"val {row}".encode()
        lines.append(f"val_{row}.JPEG\t{WNIDS[row % 3]}\t0\t32\t44\t62\n")
        files[f"{root}/test/images/test_{row}.JPEG"] = b"test"
    files[f"{root}/val/val_annotations.txt"] = "".join(lines).encode()
    return files


def zip_bytes(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()
