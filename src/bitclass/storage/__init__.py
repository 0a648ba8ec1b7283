"""Model files: safetensors, versioned, written atomically, and read as untrusted input.

`docs/format.md` is the specification. Only NumPy, safetensors and the kernels are imported, so that
a deployed predictor stays light. `write_file` and `open_file` serve files of other kinds as well.
"""

from bitclass.storage.atomic import atomic_write, check_writable
from bitclass.storage.container import (
    VERSION,
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
    ProjectionType,
    load,
    save,
)

__all__ = [
    "PROJECTION_TYPES",
    "VERSION",
    "Content",
    "Expected",
    "ModelFileError",
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
    "save",
    "write_file",
]
