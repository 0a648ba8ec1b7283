"""Text classification in one script: hash n-grams, train, save, predict, explain."""

import tempfile
from pathlib import Path

import numpy as np

from bitclass import BinaryCodeClassifier, load
from bitclass.storage import save
from bitclass.text import NgramHasher

FORMS = {
    "table": ["book a table for {}", "a table for {} please", "can you reserve a table for {}"],
    "weather": ["what is the weather in {}", "will it rain in {}", "how warm is it in {}"],
    "flight": ["book a flight to {}", "fly me to {}", "i need a plane ticket to {}"],
    "music": ["play {} for me", "put on some songs of {}", "i want to listen to {}"],
}
NAMES = ["two", "paris", "six people", "rome", "the beatles", "london", "bach", "ten", "cairo"]

pairs = [
    (form.format(name), intent)
    for intent, forms in FORMS.items()
    for form in forms
    for name in NAMES
]
texts = [text for text, _ in pairs]
intents = np.array([intent for _, intent in pairs])

# Count document frequencies; partial_fit does so for files larger than memory.
hasher = NgramHasher().fit(texts)
classifier = BinaryCodeClassifier(n_bits=64, random_state=0).fit(hasher.transform(texts), intents)

# The file includes the n-gram hashing: loading it requires neither scikit-learn nor the texts.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "intents.safetensors"
    save(path, classifier.packed().with_text(hasher.features_), projection="int8")
    print(f"{path.name}: {path.stat().st_size:,} bytes")
    model = load(path)

for text in ["Will it RAIN in Oslo?", "reserve a tabel for eleven"]:
    ngrams = ", ".join(f"{ngram!r} {share:.2f}" for ngram, share in model.explain(text, n_ngrams=4))
    print(f"{text}: {model.predict([text])[0]}, because of {ngrams}")
