"""Small models of texts."""

import numpy as np

from bitclass import TextClassifier

SENTENCES = {
    "table": ["book a table for {}", "a table for {} please", "can you reserve a table for {}"],
    "weather": ["what is the weather in {}", "will it rain in {}", "how warm is it in {}"],
    "flight": ["book a flight to {}", "fly me to {}", "i need a plane ticket to {}"],
    "music": ["play {} for me", "put on some songs of {}", "i want to listen to {}"],
}
NAMES = ["two", "paris", "six people", "rome", "the beatles", "london", "bach", "ten", "cairo"]


def sentences():
    """Texts and their labels."""
    pairs = [
        (form.format(name), label)
        for label, forms in SENTENCES.items()
        for form in forms
        for name in NAMES
    ]
    texts, labels = zip(*pairs, strict=True)
    return list(texts), np.array(labels)


def fitted(**parameters):
    """Texts, labels and a fitted classifier."""
    texts, labels = sentences()
    classifier = TextClassifier(**{"n_bits": 64, "random_state": 0, **parameters})
    return texts, labels, classifier.fit(texts, labels)
