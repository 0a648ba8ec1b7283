"""Training and prediction on Dask clusters."""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:  # pragma: no cover - only without the extra
    raise ImportError(
        "training on a cluster requires Dask; install it with: pip install 'bitclass[dask]'"
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
