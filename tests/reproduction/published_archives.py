"""Small data sets of pictures in the exact formats of the published ones."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile

import numpy as np
from scipy.io import savemat


class Python2Pickle:
    """Writes what cPickle of Python 2 wrote in protocol 2, text as its 8-bit strings."""

    def __init__(self):
        self.out = bytearray(b"\x80\x02")
        self._memo = 0

    def put(self):
        self._memo += 1
        if self._memo < 256:
            self.out += b"q" + bytes([self._memo])
        else:
            self.out += b"r" + struct.pack("<I", self._memo)
        return self

    def text(self, value):
        if len(value) < 256:
            self.out += b"U" + bytes([len(value)]) + value
        else:
            self.out += b"T" + struct.pack("<I", len(value)) + value
        return self.put()

    def number(self, value):
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        else:
            self.out += b"J" + struct.pack("<i", value)

    def array(self, values, by_columns=False):
        """As NumPy of Python 2's time had itself pickled."""
        self.out += b"cnumpy.core.multiarray\n_reconstruct\n"
        self.put().out += b"cnumpy\nndarray\n"
        self.put().out += b"K\x00\x85"
        self.put().text(b"b").out += b"\x87"
        self.put().out += b"R"
        self.put().out += b"(K\x01"
        for size in values.shape:
            self.number(size)
        self.out += b"\x86"
        self.put().out += b"cnumpy\ndtype\n"
        self.put().text(b"u1").out += b"K\x00K\x01\x87"
        self.put().out += b"R"
        self.put().out += b"(K\x03"
        self.text(b"|").out += b"NNN"
        self.number(-1)
        self.number(-1)
        self.out += b"K\x00tb" + (b"\x88" if by_columns else b"\x89")
        self.text(values.tobytes("F" if by_columns else "C")).out += b"tb"

    def value(self, value):
        if isinstance(value, dict):
            self.out += b"}"
            self.put().out += b"("
            for key, inner in value.items():
                self.text(key)
                self.value(inner)
            self.out += b"u"
        elif isinstance(value, list):
            self.out += b"]"
            self.put().out += b"("
            for inner in value:
                self.value(inner)
            self.out += b"e"
        elif isinstance(value, bytes):
            self.text(value)
        elif isinstance(value, int):
            self.number(value)
        else:
            self.array(value)

    def bytes(self):
        return bytes(self.out) + b"."


def python2_pickle(value):
    pickle = Python2Pickle()
    pickle.value(value)
    return pickle.bytes()


def tar_bytes(files):
    """An uncompressed tar file, with an entry for each folder as the real ones have."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        folders = sorted({name.rpartition("/")[0] for name in files} - {""})
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            tar.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def write_all(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def cifar_rows(n, n_classes, seed):
    """Pixels (n, 3072) and classes (n,), with every class in turn."""
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)
    return pixels, [(row + seed) % n_classes for row in range(n)]


CIFAR10_CLASSES = [
    b"airplane", b"automobile", b"bird", b"cat", b"deer", b"dog", b"frog", b"horse", b"ship",
    b"truck",
]  # fmt: skip


def cifar10_python(n=20):
    files = {}
    for batch in range(1, 7):
        name = f"data_batch_{batch}" if batch < 6 else "test_batch"
        pixels, labels = cifar_rows(n, 10, batch)
        files[f"cifar-10-batches-py/{name}"] = python2_pickle(
            {
                b"batch_label": b"training batch %d of 5" % batch,
                b"labels": labels,
                b"data": pixels,
                b"filenames": [b"picture_s_%06d.png" % row for row in range(n)],
            }
        )
    files["cifar-10-batches-py/batches.meta"] = python2_pickle(
        {b"num_cases_per_batch": n, b"label_names": CIFAR10_CLASSES, b"num_vis": 3072}
    )
    files["cifar-10-batches-py/readme.html"] = b"<meta>"
    return files


def sun397(counts=(("abbey", 4), ("apartment_building/outdoor", 3), ("zoo", 2))):
    """Files of SUN397; the content of each picture is its own path."""
    files = {"ClassName.txt": "".join(f"/{c[0]}/{c}\n" for c, _ in counts).encode()}
    for name, n in counts:
        for row in range(n):
            path = f"{name[0]}/{name}/sun_{row:05d}.jpg"
            files[path] = path.encode()
    return files


WNIDS = ("n01440764", "n01443537", "n01484850")


def class_tar(wnid, n):
    return tar_bytes({f"{wnid}_{row}.JPEG": f"{wnid} {row}".encode() for row in range(n)})


def ilsvrc_train(counts=(3, 2, 4)):
    pairs = zip(WNIDS, counts, strict=False)
    return tar_bytes({f"{wnid}.tar": class_tar(wnid, n) for wnid, n in pairs})


def ilsvrc_validation(n=5):
    names = [f"ILSVRC2012_val_{row:08d}.JPEG" for row in range(1, n + 1)]
    return tar_bytes({name: name.encode() for name in reversed(names)})


def meta_mat(compressed=True):
    """The synsets as they are in the kit: 1860 entries there, the classes first."""
    fields = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children",
              "wordnet_height", "num_train_images")  # fmt: skip
    entries = [
        (1.0, WNIDS[1], "goldfish, Carassius auratus", "small golden fish", 0.0, [], 0.0, 2.0),
        (2.0, WNIDS[2], "great white shark", "large shark", 0.0, [], 0.0, 4.0),
        (3.0, WNIDS[0], "tench, Tinca tinca", "freshwater fish", 0.0, [], 0.0, 3.0),
        (1001.0, "n01317541", "fish", "any of them", 3.0, [1.0, 2.0, 3.0], 1.0, 0.0),
    ]
    synsets = np.zeros((len(entries), 1), dtype=[(field, object) for field in fields])
    for row, entry in enumerate(entries):
        synsets[row, 0] = tuple(np.array([v]) if isinstance(v, list) else v for v in entry)
    stream = io.BytesIO()
    savemat(stream, {"synsets": synsets}, do_compression=compressed)
    return stream.getvalue()


def devkit(truth=(3, 1, 2, 2, 1)):
    root = "ILSVRC2012_devkit_t12"
    lines = "".join(f"{number}\n" for number in truth).encode()
    return {
        f"{root}/readme.txt": b"hello",
        f"{root}/data/meta.mat": meta_mat(),
        f"{root}/data/ILSVRC2012_validation_ground_truth.txt": lines,
    }


def tiny_imagenet(n=3):
    root = "tiny-imagenet-200"
    files = {f"{root}/wnids.txt": "\n".join(WNIDS).encode()}
    files[f"{root}/words.txt"] = b"n01440764\ttench, Tinca tinca\nn01443537\tgoldfish\n"
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
