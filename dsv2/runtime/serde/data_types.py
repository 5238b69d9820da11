"""The interface through which the encoder and decoder look up the data classes of a job."""

from __future__ import annotations

from typing import Protocol, TypeVar

from dsv2.runtime.serde.layouts import ClassLayout
from dsv2.runtime.serde.values import Converter

L = TypeVar("L", bound=ClassLayout)


class DataTypes(Protocol):
    """The data classes of a job."""

    def layout_of(self, kind: type) -> ClassLayout | Converter:
        """Return how values of ``kind`` are encoded. Raises ``SerializationError`` if they cannot be."""

    def layout_named(self, name: str, form: type[L], *, shared: bool = False) -> L:
        """Return how values of a class are decoded.

        Args:
            name: The class.
            form: The layout with which they were encoded, or ``ClassLayout`` if any can decode them.
            shared: Whether they may be shared or contain themselves.

        Raises:
            CorruptDataError: The job lacks the class, or its layout is not ``form``.
        """

    def converter_named(self, name: str) -> Converter:
        """Return the converter ``name``. Raises ``CorruptDataError`` if there is none."""
