"""Reads a savepoint from a folder."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from dsv2.errors import CorruptDataError
from dsv2.folders import Folder
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import SavepointFile, SavepointInfo, read_info
from dsv2.savepoint.tables import rows_in

__all__ = ("SavepointReader", "check_files")

_RESTORE = "Restore the savepoint from a backup."


class SavepointReader:
    """Opens a savepoint.

    Args:
        folder: The savepoint.

    Raises:
        ConfigurationError: The folder is not a savepoint.
        IncompatibleCheckpointError: The format has a version that is not known here.
        CorruptDataError: The description is damaged, or a file is missing, foreign, or has another size.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.info: SavepointInfo = read_info(folder)
        check_files(folder, self.info)

    def rows(self, uid: str) -> Iterator[StateRow]:
        """Return the rows of an operator, one file at a time.

        Raises:
            CorruptDataError: A file is damaged; names it.
        """
        folders = tuple(f"{table.folder}/" for table in self.info.tables if table.id.uid == uid)
        for name, file in self.info.files.items():
            if name.startswith(folders):
                yield from rows_in(self._content(name, file), self._folder.place(name))

    def verify(self) -> None:
        """Compare the digests of all files. Raises ``CorruptDataError`` for the first that differs."""
        for name, file in self.info.files.items():
            self._content(name, file)

    def _content(self, name: str, file: SavepointFile) -> bytes:
        data = self._folder.read(name)
        if data is None or sha256(data).hexdigest() != file.sha256:
            raise CorruptDataError(f"{self._folder.place(name)} was changed since the savepoint was taken. {_RESTORE}")
        return data


def check_files(folder: Folder, info: SavepointInfo) -> None:
    """Compare the names and sizes of the files in ``folder`` with the description, without reading them.

    Raises:
        CorruptDataError: A file is missing, foreign, or has another size; names it.
    """
    for inside in (table.folder for table in info.tables):
        found = {f"{inside}/{name}": size for name, size in folder.sizes(inside).items() if not _is_hidden(name)}
        expected = {name: file.size for name, file in info.files.items() if name.startswith(f"{inside}/")}
        for name in sorted(found.keys() | expected.keys()):
            place = folder.place(name)
            if name not in found:
                raise CorruptDataError(f"{place} is missing. {_RESTORE}")
            if name not in expected:
                raise CorruptDataError(f"{place} does not belong to the savepoint. Remove it.")
            if found[name] != expected[name]:
                raise CorruptDataError(f"{place} has {found[name]} bytes, not {expected[name]}. {_RESTORE}")


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))  # Spark neither reads nor counts these
