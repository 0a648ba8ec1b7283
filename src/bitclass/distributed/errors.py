"""What goes wrong on a cluster, told with the partition or the address it went wrong at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ClusterError", "PartitionError", "PartitionMemoryError", "SumsMoved", "naming"]


class PartitionError(ValueError):
    """A partition that cannot be learned from."""


class PartitionMemoryError(MemoryError):
    """A partition that a worker had no memory for."""


class ClusterError(ConnectionError):
    """A cluster that cannot be reached, has no workers, or was lost."""


class SumsMoved(RuntimeError):  # noqa: N818 - not a fault: the sums are made anew
    """Sums that left for another worker just as rows were being added to them."""


@contextmanager
def naming(partition: str) -> Iterator[None]:
    """Name the partition in whatever goes wrong with it.

    Examples
    --------
    >>> with naming("partition 3"):
    ...     raise ValueError("found 2 features, expected 5")
    Traceback (most recent call last):
    ...
    bitclass.distributed.errors.PartitionError: partition 3: found 2 features, expected 5
    """
    try:
        yield
    except MemoryError as error:
        raise PartitionMemoryError(
            f"{partition}: no memory for it on its worker ({error or 'out of memory'}); make "
            "partitions smaller or give workers more memory"
        ) from error
    except (ValueError, TypeError, OSError) as error:
        raise PartitionError(f"{partition}: {error}") from error
