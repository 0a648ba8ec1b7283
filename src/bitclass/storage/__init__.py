"""Model files: safetensors, versioned, written atomically, and read as untrusted input.

`docs/format.md` is the specification. Only NumPy, safetensors and the kernels are imported, so that
a deployed predictor stays light. `write_file` and `open_file` serve files of other kinds as well.
"""

from bitclass.storage.atomic import atomic_write, check_writable
from bitclass.storage.container import (
    Content,
    Expected,
    ModelFileError,
    open_file,
    write_file,
)
from bitclass.storage.extractors import check_extractor, extractor_of
from bitclass.storage.labels import decode_labels, encode_labels, label_kind, label_tensor
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
    "Content",
    "Expected",
    "ModelFileError",
    "ModelHeader",
    "ProjectionType",
    "atomic_write",
    "check_extractor",
    "check_writable",
    "decode_labels",
    "encode_labels",
    "extractor_of",
    "label_kind",
    "label_tensor",
    "load",
    "open_file",
    "read_header",
    "save",
    "write_file",
]
