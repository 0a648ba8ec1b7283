"""The classifier on many machines, by Dask."""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:  # pragma: no cover - seen only without the extra
    raise ImportError(
        "learning on a cluster needs Dask; install it with: pip install 'bitclass[dask]'"
    ) from error

from bitclass.distributed.cluster import connected
from bitclass.distributed.errors import ClusterError, PartitionError, PartitionMemoryError
from bitclass.distributed.estimator import DaskBinaryCodeClassifier
from bitclass.distributed.partitions import FeatureFiles

__all__ = [
    "ClusterError",
    "DaskBinaryCodeClassifier",
    "FeatureFiles",
    "PartitionError",
    "PartitionMemoryError",
    "connected",
]
