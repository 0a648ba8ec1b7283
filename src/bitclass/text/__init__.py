"""Texts: the classifier, hashed n-grams and sentence embeddings."""

from bitclass.embeddings import SentenceEmbeddings, recorded_embeddings
from bitclass.text.classifier import TextClassifier
from bitclass.text.ngrams import csr_rows, fit_ngrams

__all__ = [
    "SentenceEmbeddings",
    "TextClassifier",
    "csr_rows",
    "fit_ngrams",
    "recorded_embeddings",
]
