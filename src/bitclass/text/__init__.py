"""Features of texts: hashed n-grams, sentence embeddings, and text files."""

from bitclass.text.embeddings import SentenceEmbeddings, embeddings_named, recorded_embeddings
from bitclass.text.hasher import NgramHasher
from bitclass.text.rows import TextRows, Texts, open_texts

__all__ = [
    "NgramHasher",
    "SentenceEmbeddings",
    "TextRows",
    "Texts",
    "embeddings_named",
    "open_texts",
    "recorded_embeddings",
]
