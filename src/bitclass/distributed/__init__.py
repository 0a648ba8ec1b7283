"""The classifier on many machines, by Dask."""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:  # pragma: no cover - seen only without the extra
    raise ImportError(
        "training on a cluster needs Dask; install it with: pip install 'bitclass[dask]'"
    ) from error

from bitclass.distributed.cluster import ClusterError, FeatureFiles, PartitionError, connected
from bitclass.distributed.estimator import DaskBinaryCodeClassifier

__all__ = [
    "ClusterError",
    "DaskBinaryCodeClassifier",
    "FeatureFiles",
    "PartitionError",
    "connected",
]
