"""Estimators link to their pages if the package metadata has a documentation URL."""

from email.message import Message

import pytest

from bitclass import BinaryCodeClassifier, documentation
from bitclass.text import NgramHasher


@pytest.fixture
def published(monkeypatch):
    """Set the URLs in the metadata of the package."""

    def publish(*urls):
        message = Message()
        for url in urls:
            message["Project-URL"] = url
        monkeypatch.setattr(documentation, "metadata", lambda name: message)
        documentation.site.cache_clear()

    yield publish
    documentation.site.cache_clear()


@pytest.mark.parametrize(
    ("estimator", "name"),
    [(BinaryCodeClassifier(), "bitclass.BinaryCodeClassifier"),
     (NgramHasher(), "bitclass.text.NgramHasher")],
)  # fmt: skip
def test_the_html_representation_links_to_the_page(published, estimator, name):
    published("Source, https://code.example/b", "Documentation, https://docs.example/b/")
    page = f"https://docs.example/b/api/generated/{name}.html"
    assert f'href="{page}"' in estimator._repr_html_()


def test_without_a_url_there_is_no_link(published):
    published("Source, https://code.example/b")
    assert BinaryCodeClassifier()._get_doc_link() == ""
    assert "scikit-learn.org" not in BinaryCodeClassifier()._repr_html_().partition("</style>")[2]
