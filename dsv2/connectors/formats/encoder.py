"""The frame of encoders: each process prepares one with its first record, because it may have to ask a registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from dsv2.connectors.formats.registry import Subject


T_contra = TypeVar("T_contra", contravariant=True)


class PreparedEncoder(ABC, Generic[T_contra]):
    """Encodes records of ``record_type``, whose schema belongs to ``subject`` of a registry. None: to none."""

    def __init__(self, record_type: type[T_contra], subject: Subject | None) -> None:
        self._record_type = record_type
        self._subject = subject
        self._encode: Callable[[T_contra], bytes] | None = None
        self._first = b""  # before each record

    def __call__(self, record: T_contra, /) -> bytes:
        """Encode one record.

        Raises:
            FormatError: The record does not match the schema, or cannot be encoded.
            JobError: The registry does not have the schema, or cannot be reached.
        """
        encode = self._encode
        if encode is None:
            self._first = b"" if self._subject is None else self._header(self._subject)
            encode = self._encode = self._prepared()
        return self._first + encode(record)

    @abstractmethod
    def _header(self, subject: Subject) -> bytes:
        """Return what precedes each record: the id of its schema, which the registry has or gets."""

    @abstractmethod
    def _prepared(self) -> Callable[[T_contra], bytes]:
        """Return what encodes. Called once in a process."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._record_type.__qualname__}, subject={self._subject})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_encode": None, "_first": b""}
