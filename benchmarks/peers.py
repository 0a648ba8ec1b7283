"""Classifiers for many classes with a common interface, each to be run in a separate process.

A method has ``fit(X, y)``, ``predict(X)`` and ``n_bytes()``; y are class indices. Libraries are
imported on demand, so that only methods whose library is missing fail.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["METHODS"]

_ROWS_PER_BLOCK = 1024


class Bitclass:
    """bitclass; the size is that of a model file with an int8 projection."""

    note = ""

    def __init__(self, n_bits: int, refine: bool | str = "auto", seed: int = 0) -> None:
        from bitclass import BinaryCodeClassifier

        self._classifier = BinaryCodeClassifier(n_bits, refine=refine, random_state=seed)

    def fit(self, X, y):
        self._model = self._classifier.fit(X, y).packed()

    def predict(self, X):
        return self._model.predict(X)

    def n_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            self._classifier.save(path, projection="int8")
            return path.stat().st_size


class Linear:
    """One real-valued weight vector and one offset per class; the largest score wins."""

    note = ""

    def predict(self, X):
        found = np.empty(len(X), dtype=np.intp)
        for start in range(0, len(X), _ROWS_PER_BLOCK):
            part = slice(start, start + _ROWS_PER_BLOCK)
            found[part] = (X[part] @ self.weights + self.offsets).argmax(axis=1)
        return found

    def n_bytes(self):
        return self.weights.nbytes + self.offsets.nbytes


class NearestMean(Linear):
    """The class whose mean is nearest."""

    def fit(self, X, y):
        means = _means(X, y)
        self.weights = np.ascontiguousarray(means.T, dtype=np.float32)
        self.offsets = (-0.5 * np.einsum("cd,cd->c", means, means)).astype(np.float32)


class LDA(Linear):
    """Linear discriminant analysis with equal priors; adds `alpha` mean variances to each."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha

    def fit(self, X, y):
        means, d = _means(X, y), X.shape[1]
        scatter = np.zeros((d, d))
        for start in range(0, len(X), 1 << 14):
            part = slice(start, start + (1 << 14))
            rest = X[part] - means[y[part]].astype(np.float32)
            scatter += rest.T @ rest
        scatter[np.diag_indices(d)] += self._alpha * np.trace(scatter) / d
        weights = np.linalg.solve(scatter / len(X), means.T)
        self.offsets = (-0.5 * np.einsum("dc,cd->c", weights, means)).astype(np.float32)
        self.weights = weights.astype(np.float32)


def _means(X, y):
    counts = np.bincount(y)
    order = np.argsort(y, kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    means = np.empty((len(counts), X.shape[1]))
    for first in range(0, len(counts), 4096):  # rows of some classes at a time
        last = min(first + 4096, len(counts))
        rows = order[starts[first] : starts[last - 1] + counts[last - 1]]
        means[first:last] = np.add.reduceat(
            X[rows].astype(np.float64), starts[first:last] - starts[first], axis=0
        )
    return means / counts[:, None]


class Faiss:
    """The class of the nearest training row."""

    note = ""

    def __init__(self, hnsw: bool) -> None:
        self._hnsw = hnsw

    def fit(self, X, y):
        import faiss

        faiss.omp_set_num_threads(_threads())
        if self._hnsw:
            self._index = faiss.IndexHNSWFlat(X.shape[1], 32)
            self._index.hnsw.efSearch = 64
            self.note = "32 neighbours, efSearch 64"
        else:
            self._index = faiss.IndexFlatL2(X.shape[1])
        self._index.add(X)
        self._y = y

    def predict(self, X):
        _, nearest = self._index.search(X, 1)
        return self._y[nearest[:, 0]]

    def n_bytes(self):
        import faiss

        return faiss.serialize_index(self._index).nbytes + self._y.nbytes


class Softmax(Linear):
    """A linear layer and softmax, trained by Adam on standardised rows."""

    def __init__(self, epochs: int = 10, cpu_limit: float = 300.0) -> None:
        self._epochs, self._cpu_limit = epochs, cpu_limit

    def fit(self, X, y):
        import torch

        torch.set_num_threads(_threads())
        torch.manual_seed(0)
        mean, deviation = X.mean(axis=0), X.std(axis=0) + np.float32(1e-6)
        layer = torch.nn.Linear(X.shape[1], int(y.max()) + 1)
        adam = torch.optim.AdamW(layer.parameters(), lr=2e-3, weight_decay=0.01)
        n_steps = self._epochs * (len(X) // 512)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, n_steps)
        end, step = time.process_time() + self._cpu_limit, 0
        for _ in range(self._epochs):
            order = np.random.default_rng(step).permutation(len(X))
            for first in range(0, len(X) - 511, 512):
                rows = order[first : first + 512]
                batch = torch.from_numpy((X[rows] - mean) / deviation)
                loss = torch.nn.functional.cross_entropy(layer(batch), torch.from_numpy(y[rows]))
                adam.zero_grad()
                loss.backward()
                adam.step()
                schedule.step()
                step += 1
                if time.process_time() > end:
                    break
        self.note = f"{step * 512 / len(X):.1f} of {self._epochs} epochs"
        weights = layer.weight.detach().numpy() / deviation
        self.offsets = layer.bias.detach().numpy() - weights @ mean
        self.weights = np.ascontiguousarray(weights.T)


class LinearSVC(Linear):
    """LibLinear, one-vs-rest, C=0.01 on standardised rows."""

    def fit(self, X, y):
        from sklearn.svm import LinearSVC as LibLinear

        mean, deviation = X.mean(axis=0), X.std(axis=0) + np.float32(1e-6)
        found = LibLinear(C=0.01).fit((X - mean) / deviation, y)
        weights = found.coef_ / deviation
        self.offsets = (found.intercept_ - weights @ mean).astype(np.float32)
        self.weights = np.ascontiguousarray(weights.T, dtype=np.float32)


class Omikuji:
    """Partitioned label trees (Parabel's settings); reads its rows from a text file."""

    note = "rows of length 1"

    def fit(self, X, y):
        import omikuji

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.txt"
            with path.open("w") as file:
                file.write(f"{len(X)} {X.shape[1]} {int(y.max()) + 1}\n")
                for row, label in zip(X, y, strict=True):
                    values = " ".join(f"{k}:{v:.3f}" for k, v in enumerate(row) if v)
                    file.write(f"{label} {values}\n")
            start, cpu_start = time.perf_counter(), time.process_time()
            self._model = omikuji.Model.train_on_data(str(path), n_threads=_threads())
            self.fit_times = time.perf_counter() - start, time.process_time() - cpu_start

    def predict(self, X):
        found = np.zeros(len(X), dtype=np.intp)
        for i, row in enumerate(X):
            pairs = [(int(k), float(row[k])) for k in np.flatnonzero(row)]
            best = self._model.predict(pairs, top_k=1)
            found[i] = best[0][0] if best else 0
        return found

    def n_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            self._model.save(folder)
            return _folder_bytes(folder)


class NapkinXC:
    """Probabilistic label trees."""

    note = ""

    def fit(self, X, y):
        from napkinxc.models import PLT
        from scipy.sparse import csr_matrix

        self._folder = tempfile.TemporaryDirectory()
        self._model = PLT(self._folder.name, threads=_threads(), verbose=False)
        self._model.fit(csr_matrix(X), y.tolist())

    def predict(self, X):
        from scipy.sparse import csr_matrix

        found = self._model.predict(csr_matrix(X), top_k=1)
        return np.array([labels[0] if labels else 0 for labels in found], dtype=np.intp)

    def n_bytes(self):
        return _folder_bytes(self._folder.name)


def _folder_bytes(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def _threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


#: Constructor of each method, and the maximum number of classes it is run with.
METHODS: dict[str, tuple[Callable[[], Any], int]] = {
    "bitclass, 128 bits": (partial(Bitclass, 128), 10**9),
    "bitclass, 256 bits": (partial(Bitclass, 256), 10**9),
    "bitclass, 128 bits, refine=False": (partial(Bitclass, 128, refine=False), 10**9),
    "bitclass, 256 bits, refine=False": (partial(Bitclass, 256, refine=False), 10**9),
    "LDA": (partial(LDA, 1.0), 10**9),
    "LDA, less shrinkage": (partial(LDA, 0.1), 10**9),
    "nearest mean": (NearestMean, 10**9),
    "1-NN, faiss flat": (partial(Faiss, hnsw=False), 10**9),
    "1-NN, faiss HNSW": (partial(Faiss, hnsw=True), 10**9),
    "linear softmax, torch": (Softmax, 10**9),
    "omikuji": (Omikuji, 21_000),
    "napkinXC": (NapkinXC, 21_000),
    "LinearSVC": (LinearSVC, 1000),
}
