"""Model and statistics files: versioned, written atomically, and read as untrusted input.

`docs/format.md` is the specification. Only NumPy and the kernels are imported, so that a deployed
predictor stays light.
"""

from bitclass.storage.atomic import atomic_write, check_writable
from bitclass.storage.container import ModelFileError
from bitclass.storage.extractors import check_extractor, extractor_of
from bitclass.storage.model_file import (
    PROJECTION_TYPES,
    ModelHeader,
    ProjectionType,
    load,
    read_header,
    save,
)

__all__ = [
    "PROJECTION_TYPES",
    "ModelFileError",
    "ModelHeader",
    "ProjectionType",
    "atomic_write",
    "check_extractor",
    "check_writable",
    "extractor_of",
    "load",
    "read_header",
    "save",
]
