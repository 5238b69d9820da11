"""Compressed text files, which are recognized by the ends of their names: ``.gz``, ``.bz2`` and ``.zst``.

They are not divided between micro-batches, because a position in the text cannot be found without reading it.
"""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import Any, BinaryIO, cast

from dsv2.base.type_variables import T
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.files.directory import SourceFile
from dsv2.connectors.files.format import Unreadable, split_batch
from dsv2.sources import SplitBatch

_BUFFER = 1 << 20


def is_compressed(file: SourceFile) -> bool:
    """Return whether the name of ``file`` is that of a compressed file."""
    return file.path.lower().endswith((".gz", ".bz2", ".zst"))


def open_text(file: SourceFile) -> BinaryIO:
    """Open the bytes of a text file, which may be compressed. Raises ``FileNotFoundError``."""
    end = file.path.lower().rpartition(".")[2]
    if end == "gz":
        return cast(BinaryIO, BufferedReader(gzip.GzipFile(fileobj=file.open(), mode="rb"), _BUFFER))
    if end == "bz2":
        return cast(BinaryIO, BufferedReader(bz2.BZ2File(file.open()), _BUFFER))
    if end == "zst":
        require_client_library("pyarrow", "files", f"Reading {file}")
        import pyarrow as pa

        return cast(BinaryIO, BufferedReader(pa.CompressedInputStream(file.open_in_arrow(), "zstd"), _BUFFER))
    return file.open()


def readable(file: SourceFile, batches: Iterator[SplitBatch[T]], decode: Callable[[Any], T]) -> Iterator[SplitBatch[T]]:
    """Yield ``batches`` of a compressed file. The error policy of the source applies to a part that is damaged."""
    try:
        yield from batches
    except (EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the file system
            raise
        reason = f"{file} is damaged, so that a part of it cannot be read: {error}"
        yield split_batch([Unreadable(str(file), reason)], decode, [0])
