"""Texts to rows: hashed n-grams, sentence embeddings, and files of texts."""

from bitclass.text.hasher import NgramHasher

__all__ = ["NgramHasher"]
