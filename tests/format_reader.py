"""An independent reader of model files, written from docs/format.md with JSON and NumPy."""

import hashlib
import json
import struct

import numpy as np

TYPES = {
    "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "F16": "<f2",
    "U32": "<u4", "I32": "<i4", "F32": "<f4", "U64": "<u8", "I64": "<i8", "F64": "<f8",
}  # fmt: skip


class Reader:
    def __init__(self, path):
        with open(path, "rb") as file:
            content = file.read()
        assert hashlib.sha256(content[:-32]).digest() == content[-32:]
        (length,) = struct.unpack("<Q", content[:8])
        table = json.loads(content[8 : 8 + length])
        self.header = json.loads(table.pop("__metadata__")["bitclass"])
        assert (self.header["version"], self.header["kind"]) == (1, "model")
        data = content[8 + length :]
        self.tensors = {}
        for name, entry in table.items():
            begin, end = entry["data_offsets"]
            values = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
            self.tensors[name] = values.reshape(entry["shape"])
        self.tensors["projection"] = self.entries()

    def entries(self):
        """The projection (d, r), from packed entries where they are packed."""
        stored, kind = self.tensors["projection"], self.header["projection"]
        if kind not in ("int4", "1bit"):
            return stored
        r, stored = len(self.tensors["thresholds"]), stored.tolist()
        if kind == "int4":
            values = [[(row[k // 2] >> 4 * (k % 2) & 15) - 8 for k in range(r)] for row in stored]
        else:
            values = [[(row[k // 8] >> (k % 8) & 1) * 2 - 1 for k in range(r)] for row in stored]
        return np.array(values, dtype=np.int8)

    def labels(self):
        kind, stored = self.header["labels"], self.tensors["classes"]
        if kind in ("str", "object"):
            return np.array(json.loads(stored.tobytes()), dtype=kind)
        return stored.astype(kind)

    def bias(self):
        return self.tensors.get("bias", np.zeros(len(self.tensors["weights"]))).astype(float)

    def hash_function(self):
        projection = self.tensors["projection"]
        if projection.dtype == np.float32:
            return projection, self.tensors["intercept"]
        step = self.tensors["column_scale"]
        P = (projection.astype(float) * step / self.scale()[:, None]).astype(np.float32)
        t = self.tensors["thresholds"] * step - self.centre().astype(float) @ P.astype(float)
        return P, t

    def centre(self):
        return self.tensors.get("centre", np.zeros(len(self.tensors["projection"]), np.float32))

    def scale(self):
        return self.tensors.get("scale", np.ones(len(self.tensors["projection"]), np.float32))

    def features(self, X):
        if "columns" in self.tensors:
            assert X.shape[1] == self.tensors["n_columns"][0]
            return X[:, self.tensors["columns"]]
        if "anchors" not in self.tensors:
            return X
        A = self.tensors["anchors"].astype(float)
        Z = (X - self.tensors["anchor_centre"].astype(float)) / self.tensors["anchor_scale"]
        squares = ((Z[:, None, :] - A[None]) ** 2).sum(axis=2)
        return np.exp(-self.tensors["anchor_gamma"][0] * squares).astype(np.float32)

    def bits(self, X):
        return self.values(X) >= 0

    def values(self, X):
        """P'x + t, (n, r)."""
        X = self.features(X)
        if "anchors" in self.tensors:
            P, t = self.hash_function()
            return X @ P + t
        if self.tensors["projection"].dtype == np.int8:
            Q, theta = self.tensors["projection"], self.tensors["thresholds"]
            u = 1 / self.tensors["column_scale"]
        else:
            P, t = self.hash_function()
            F = P.astype(float) * self.scale()[:, None]
            largest = np.abs(F).max(axis=0)
            u = 127 / np.where(largest > 0, largest, 127)
            Q = np.rint(F * u)
            theta = (t + (P.astype(float) * self.centre()[:, None]).sum(axis=0)) * u
        if "columns" in self.tensors:  # rows are not rounded
            return ((X / self.scale()) @ Q + theta) / u
        rows = []
        for x in X.astype(np.float32):
            z = x
            if "centre" in self.tensors or "scale" in self.tensors:
                z = (x - self.centre()) * (np.float32(1) / self.scale())
                z = np.where(Q.any(axis=1), z.clip(-32, 32), np.float32(0))
            m = np.abs(z).max()
            q, f = np.zeros_like(z), np.float32(1)
            if m >= 1e-30 and np.isfinite(m):
                f = np.float32(127) / m
                q = np.rint(z * f)
            total = q.astype(np.int64) @ Q.astype(np.int64) + theta * float(f)
            rows.append(total / (float(f) * u))
        return np.array(rows)

    def weight_bits(self):
        r = self.tensors["projection"].shape[1]
        weights = self.tensors["weights"]
        return np.array([[row[k // 8] >> (k % 8) & 1 for k in range(r)] for row in weights])

    def distances(self, X):
        """Hamming distances, less half the biases rounded to even integers."""
        differ = (self.bits(X)[:, None, :] != self.weight_bits()[None]).sum(axis=2)
        return differ - np.rint(self.bias() / 2)

    def predict(self, X):
        return self.labels()[self.scores(X).argmax(axis=1)]

    def scores(self, X):
        """Scores that rank the classes; those on the short list come first."""
        distances, rescore = self.distances(X), self.header["rescore"]
        scores = self.tensors["projection"].shape[1] - 2 * distances.astype(float)
        if rescore:
            q = np.rint(127 * np.tanh(self.values(X))) / 127
            rescored = q @ (2.0 * self.weight_bits().T - 1) + np.rint(127 * self.bias()) / 127
            short = np.argsort(distances, axis=1, kind="stable")[:, :rescore]
            scores -= 1e9
            best = np.take_along_axis(rescored - 1e-6 * distances, short, axis=1)
            np.put_along_axis(scores, short, best, axis=1)
        return scores

    def typicality(self, X):
        """Share of the known rows whose best score is below that of each row."""
        table = self.tensors["typicality"].astype(float)
        m, shares = len(table), []
        for best in self.scores(X).max(axis=1):
            i = int((table <= best).sum())  # the next quantile is number i, from 0
            if i == 0 or best > table[-1]:
                shares.append(float(i > 0))
            else:
                above = table[i] - table[i - 1] if i < m else 1.0
                shares.append((i - 0.5 + (best - table[i - 1]) / above) / m)
        return np.array(shares)
