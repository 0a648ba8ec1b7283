"""Files of bitclass: versioned, atomic, and read as untrusted input.

`docs/format.md` is the specification. NumPy and the kernels are all that this needs, so that a
deployed predictor stays light.
"""

from bitclass.storage.atomic import atomic_write, check_writable
from bitclass.storage.container import (
    Container,
    Expected,
    ModelFileError,
    check_layout,
    opened,
    shown,
    write,
)
from bitclass.storage.labels import decode_labels, encode_labels, label_tensor
from bitclass.storage.model_file import (
    ANCHOR_LAYOUT,
    PROJECTION_TYPES,
    ModelHeader,
    ProjectionType,
    anchors_from,
    load,
    read_header,
    save,
    saved_anchors,
)

__all__ = [
    "ANCHOR_LAYOUT",
    "PROJECTION_TYPES",
    "Container",
    "Expected",
    "ModelFileError",
    "ModelHeader",
    "ProjectionType",
    "anchors_from",
    "atomic_write",
    "check_layout",
    "check_writable",
    "decode_labels",
    "encode_labels",
    "label_tensor",
    "load",
    "opened",
    "read_header",
    "save",
    "saved_anchors",
    "shown",
    "write",
]
