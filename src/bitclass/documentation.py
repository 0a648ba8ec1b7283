"""URLs of documentation pages, if the package was published with documentation."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, metadata

__all__ = ["DocumentedMixin", "site"]


@cache
def site() -> str:
    """URL of the documentation site; empty if the package has none.

    It is the URL named "Documentation" in the metadata of the installed package, which is set in
    ``[project.urls]`` of pyproject.toml.
    """
    try:
        urls = metadata("bitclass").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    for url in urls:
        name, _, address = url.partition(",")
        if name.strip().lower() == "documentation":
            return str(address).strip().rstrip("/")
    return ""


class DocumentedMixin:
    """Mixin for estimators whose HTML representation links to their documentation page."""

    def _get_doc_link(self) -> str:
        if not site():
            return ""
        kind = type(self)
        # Classes are exported by the package that contains their module.
        package = kind.__module__.rpartition(".")[0]
        return f"{site()}/api/generated/{package}.{kind.__name__}.html"
