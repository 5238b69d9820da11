"""Pickling parts of the program for the workers, by value where they cannot be imported there.

With the copy of cloudpickle that Spark pickles its own closures with: a class that travels in both must arrive as one.
"""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

__all__ = ("from_bytes", "to_bytes")


def to_bytes(value: Any) -> bytes:
    """``value`` for ``from_bytes``. Trusted as any PySpark function is: never read from a checkpoint."""
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def from_bytes(data: bytes) -> Any:
    """The value of ``to_bytes``."""
    return cloudpickle.loads(data)
