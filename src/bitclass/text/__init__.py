"""Texts: the classifier, hashed n-grams, sentence embeddings, and text files."""

from bitclass.embeddings import SentenceEmbeddings, embeddings_named, recorded_embeddings
from bitclass.text.classifier import TextClassifier
from bitclass.text.hasher import NgramHasher

__all__ = [
    "NgramHasher",
    "SentenceEmbeddings",
    "TextClassifier",
    "embeddings_named",
    "recorded_embeddings",
]
