"""Texts to rows: hashed n-grams and sentence embeddings."""

from bitclass.text.embeddings import SentenceEmbeddings, embeddings_named, recorded_embeddings
from bitclass.text.hasher import NgramHasher

__all__ = ["NgramHasher", "SentenceEmbeddings", "embeddings_named", "recorded_embeddings"]
