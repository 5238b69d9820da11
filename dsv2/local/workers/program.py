"""Pickles the program for worker processes, by value where they cannot import it."""

from __future__ import annotations

import io
from collections import ChainMap
from collections.abc import Callable
from types import CodeType
from typing import Any, ClassVar

import cloudpickle


def to_bytes(value: object) -> bytes:
    """Pickle ``value`` for ``cloudpickle.loads``."""
    data = io.BytesIO()
    _Pickler(data).dump(value)
    return data.getvalue()


def _reduced(code: CodeType) -> tuple[Any, ...]:
    new, args, *_ = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _restored, (new, args, code.co_filename)


def _restored(new: Callable[..., CodeType], args: tuple[Any, ...], filename: str) -> CodeType:
    return new(*args).replace(co_filename=filename)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle ships no types
    """Keeps the names of files, which cloudpickle 3.1.3 removes, for tracebacks."""

    dispatch_table: ClassVar = ChainMap({CodeType: _reduced}, cloudpickle.Pickler.dispatch_table)
