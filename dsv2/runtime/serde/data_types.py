"""What encoder and decoder have to know of the classes of a job."""

from __future__ import annotations

from typing import Protocol

from dsv2.runtime.serde.layouts import ClassLayout
from dsv2.runtime.serde.values import Converter

__all__ = ("DataTypes",)


class DataTypes(Protocol):
    """The classes that a job brings."""

    def layout_of(self, kind: type) -> ClassLayout | Converter:
        """How values of ``kind`` are written. Raises ``SerializationError`` if they cannot be."""

    def layout_named(self, name: str) -> ClassLayout:
        """How values of the class called ``name`` are made. Raises ``CorruptDataError`` if the job has none such."""

    def converter_named(self, name: str) -> Converter:
        """How the values that ``name`` stands for are made. Raises ``CorruptDataError``."""
