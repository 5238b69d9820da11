"""Pickles parts of the program for the workers, by value where the workers cannot import them.

Uses the copy of cloudpickle with which Spark pickles its closures, so that a class in both arrives as one class.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle


def to_bytes(value: Any) -> bytes:
    """Pickle ``value`` for ``from_bytes``."""
    data: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return data


def from_bytes(data: bytes) -> Any:
    """Unpickle the result of ``to_bytes``. Never pass bytes from a checkpoint: unpickling runs code."""
    return cloudpickle.loads(data)


def to_bytes_without(value: Any, stand_in: Callable[[Any], object | None]) -> bytes:
    """Pickle ``value`` for ``from_bytes_with``.

    Args:
        value: The value.
        stand_in: Returns what is pickled in place of an object that stays in this process. None: the object itself.
    """

    class Pickler(cloudpickle.CloudPickler):
        def persistent_id(self, obj: Any) -> object | None:
            return stand_in(obj)

    file = io.BytesIO()
    Pickler(file).dump(value)  # type: ignore[no-untyped-call]
    return file.getvalue()


def from_bytes_with(data: bytes, found: Callable[[Any], Any]) -> Any:
    """Unpickle the result of ``to_bytes_without``. ``found``: Returns the object for a stand-in."""

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, stand_in: Any) -> Any:
            return found(stand_in)

    return Unpickler(io.BytesIO(data)).load()
