"""Texts to rows: hashed n-grams, sentence embeddings, and files of texts."""

from bitclass.text.embeddings import SentenceEmbeddings, embeddings_named, recorded_embeddings
from bitclass.text.hasher import NgramHasher
from bitclass.text.rows import TextFiles, TextLines, TextRows, open_texts

__all__ = [
    "NgramHasher",
    "SentenceEmbeddings",
    "TextFiles",
    "TextLines",
    "TextRows",
    "embeddings_named",
    "open_texts",
    "recorded_embeddings",
]
