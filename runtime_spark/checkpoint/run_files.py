"""Files in a checkpoint by which the client of a job on Spark Connect and the server's process communicate.

::

    connect/<id>/readers          the reports of source readers, for the planners of sources
    connect/<id>/batches/7        what micro-batch 7 has for the client: whether input has ended, and records for sinks
    connect/<id>/stop             asks to write no further micro-batch

Micro-batches are numbered as for sinks. A file of a micro-batch is written before Spark commits it, and deleted when
the client's sinks have received its records. If the client ends earlier, that of the next run delivers the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import msgspec

from dsv2.base.folders import Folder
from dsv2.errors import CorruptDataError

_FOLDER = "connect"
_STOP, _BATCHES = "stop", "batches"


class ClientBatch(msgspec.Struct, frozen=True):
    """A micro-batch for the client.

    Attributes:
        ended: Whether there is nothing more to read in this run.
        outputs: The frames of records for sinks on the driver, by the uid of the sink.
    """

    ended: bool
    outputs: dict[str, list[bytes]]


class RunFiles:
    """The files of one run. ``root``: The checkpoint. ``name``: The id of the run's files; a new one by default."""

    def __init__(self, root: Folder, name: str | None = None) -> None:
        self._root = root
        self._name = f"{_FOLDER}/{name or uuid4()}"

    @classmethod
    def of_earlier_runs(cls, root: Folder, own: RunFiles) -> Iterator[RunFiles]:
        """Return the files of all runs but ``own``."""
        for name in root.sizes(_FOLDER):
            if (files := cls(root, name))._name != own._name:
                yield files

    def make_readers(self) -> str:
        """Create the folder for the reports of source readers, and return its path."""
        path = self._root.place(f"{self._name}/readers")
        os.makedirs(path, exist_ok=True)
        return path

    def write(self, number: int, batch: ClientBatch) -> None:
        """Write what a micro-batch has for the client."""
        self._root.write(self._batch(number), msgspec.msgpack.encode(batch))

    def read(self, number: int) -> ClientBatch | None:
        """Return what a micro-batch has for the client; None if it has been delivered, or does not exist.

        Raises:
            CorruptDataError: The file is damaged.
        """
        if (data := self._root.read(self._batch(number))) is None:
            return None
        try:
            return msgspec.msgpack.decode(data, type=ClientBatch)
        except msgspec.MsgspecError as error:
            place = self._root.place(self._batch(number))
            raise CorruptDataError(f"{place} is damaged: {error}. It holds records for sinks of the client.") from error

    def delete(self, number: int) -> None:
        """Delete the file of a micro-batch that has been delivered."""
        self._root.delete(self._batch(number))

    def batches(self) -> list[int]:
        """Return the micro-batches that have a file."""
        return self._root.numbers(f"{self._name}/{_BATCHES}")

    @property
    def stop_file(self) -> str:
        """The path of the file that asks to write no further micro-batch."""
        return self._root.place(f"{self._name}/{_STOP}")

    def request_stop(self) -> None:
        """Ask the server's process to write no further micro-batch."""
        self._root.write(f"{self._name}/{_STOP}", b"")

    def is_stopping(self) -> bool:
        """Return whether the client, or somebody in its place, has asked to write no further micro-batch."""
        return _STOP in self._root.sizes(self._name)

    def are_removed(self) -> bool:
        """Return whether the client has seen the end of the query, and removed these files."""
        return not self._root.sizes(self._name)

    def remove(self) -> None:
        """Delete all files of the run."""
        self._root.remove(self._name)

    def _batch(self, number: int) -> str:
        return f"{self._name}/{_BATCHES}/{number}"
