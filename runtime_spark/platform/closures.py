"""Pickles parts of the program for the workers, by value where the workers cannot import them.

Uses the copy of cloudpickle with which Spark pickles its closures, so that a class in both arrives as one class.
"""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle


def to_bytes(value: Any) -> bytes:
    """Pickle ``value`` for ``from_bytes``."""
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def from_bytes(data: bytes) -> Any:
    """Unpickle the result of ``to_bytes``. Never pass bytes from a checkpoint: unpickling runs code."""
    return cloudpickle.loads(data)
