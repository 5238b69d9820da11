"""The interface through which the encoder and decoder look up the data classes of a job."""

from __future__ import annotations

from typing import Protocol

from dsv2.runtime.serde.layouts import ClassLayout
from dsv2.runtime.serde.values import Converter

__all__ = ("DataTypes",)


class DataTypes(Protocol):
    """The data classes of a job."""

    def layout_of(self, kind: type) -> ClassLayout | Converter:
        """Return how values of ``kind`` are encoded. Raises ``SerializationError`` if they cannot be."""

    def layout_named(self, name: str) -> ClassLayout:
        """Return how values of the class ``name`` are decoded. Raises ``CorruptDataError`` if the job lacks it."""

    def converter_named(self, name: str) -> Converter:
        """Return the converter ``name``. Raises ``CorruptDataError`` if there is none."""
