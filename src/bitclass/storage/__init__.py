"""Files of bitclass: versioned, atomic, and read as untrusted input.

`docs/format.md` is the specification. NumPy and the kernels are all that this needs, so that a
deployed predictor stays light.
"""

from bitclass.storage.anchor_tensors import ANCHOR_LAYOUT, anchors_from, saved_anchors
from bitclass.storage.atomic import atomic_write, check_writable
from bitclass.storage.container import VERSIONS, Container, opened, write
from bitclass.storage.labels import decode_labels, encode_labels, label_tensor
from bitclass.storage.layout import Expected, Tensor, check_layout, tensor_of
from bitclass.storage.model_file import (
    PROJECTION_TYPES,
    ModelHeader,
    ProjectionType,
    load,
    read_header,
    save,
)
from bitclass.storage.strict_json import ModelFileError, parse_json, shown

__all__ = [
    "ANCHOR_LAYOUT",
    "PROJECTION_TYPES",
    "VERSIONS",
    "Container",
    "Expected",
    "ModelFileError",
    "ModelHeader",
    "ProjectionType",
    "Tensor",
    "anchors_from",
    "atomic_write",
    "check_layout",
    "check_writable",
    "decode_labels",
    "encode_labels",
    "label_tensor",
    "load",
    "opened",
    "parse_json",
    "read_header",
    "save",
    "saved_anchors",
    "shown",
    "tensor_of",
    "write",
]
