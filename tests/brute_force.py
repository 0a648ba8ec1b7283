"""The objective by its definition, and the best of all 2^m sign vectors: slow and obvious."""

import itertools

import numpy as np
from scipy.special import logsumexp

EVERY_LOSS = ("hinge", "exponential", "logistic", "squared_hinge", "crammer_singer")


def true_loss(name, margins):
    """The losses written out a second time, so that a slip in the first shows."""
    return {
        "hinge": lambda m: m,
        "exponential": np.exp,
        "logistic": lambda m: np.log1p(np.exp(-np.abs(m))) + np.maximum(m, 0),
        "squared_hinge": lambda m: np.where(m > -1, (1 + m) ** 2, 0.0),
        "crammer_singer": lambda m: np.where(m > -1, 1 + m, 0.0),
    }[name](np.asarray(margins, dtype=float))


def objective(codes, weights, labels, name, scale=1.0, row_weights=None):
    """Sum over i and c != y_i of loss(scale * (w_c.b_i - w_y.b_i)); (n, r), (C, r), (n,)."""
    scores = codes.astype(int) @ weights.astype(int).T
    margins = scores - np.take_along_axis(scores, labels[:, None], axis=1)
    terms = true_loss(name, scale * margins)
    terms[np.arange(len(labels)), labels] = 0.0
    row_weights = np.ones(len(labels)) if row_weights is None else row_weights
    return float(row_weights @ terms.sum(axis=1))


def log_exponential_objective(codes, weights, labels, scale=1.0):
    """Logarithm of the exponential objective, without overflow."""
    scores = codes.astype(int) @ weights.astype(int).T
    margins = (scores - np.take_along_axis(scores, labels[:, None], axis=1)).astype(float)
    margins[np.arange(len(labels)), labels] = -np.inf
    return float(logsumexp(scale * margins))


def sample_codes(learned):
    """Packed codes of the samples, (n, bytes), in what the alternation learned."""
    return learned.groups.codes[learned.groups.inverse]


def all_signs(length):
    """Every vector of -1/+1 of a length, shape (2^length, length)."""
    return np.array(list(itertools.product((-1, 1), repeat=length)), dtype=np.int8)


def random_problem(rng, n_rows, n_classes, n_bits):
    """Random codes, weights and labels; every class has a row."""
    codes = rng.choice(np.array([-1, 1], dtype=np.int8), size=(n_rows, n_bits))
    weights = rng.choice(np.array([-1, 1], dtype=np.int8), size=(n_classes, n_bits))
    labels = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, n_rows)])[:n_rows]
    return codes, weights, np.sort(labels)
