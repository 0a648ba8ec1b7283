"""Features of texts: hashed n-grams, sentence embeddings, and text files."""

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
