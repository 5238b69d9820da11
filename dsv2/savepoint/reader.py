"""Reads a savepoint from a folder."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from dsv2.base.folders import Folder
from dsv2.checkpoint.folder_kinds import SAVEPOINT_FILE
from dsv2.errors import CorruptDataError
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.metadata import SavepointFile, SavepointInfo, read_info
from dsv2.savepoint.tables import SavepointTable, rows_in

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
        self.folder = folder
        self.info: SavepointInfo = read_info(folder)
        check_files(folder, self.info)

    def rows(self, uid: str) -> Iterator[StateRow]:
        """Return the rows of an operator, one file at a time.

        Raises:
            CorruptDataError: A file is damaged; names it.
        """
        for table in self.info.tables:
            if table.id.uid == uid:
                for name, data in self.contents(table):
                    yield from rows_in(data, name)

    def replays(self) -> Iterator[tuple[str, StateRow]]:
        """Return the rows of dead letters that are processed again, each with the uid of its operator.

        Raises:
            CorruptDataError: A file is damaged; names it.
        """
        for table in self.info.tables:
            if table.id.kind == RowKind.REPLAY:
                for name, data in self.contents(table):
                    yield from ((table.id.uid, row) for row in rows_in(data, name))

    def contents(self, table: SavepointTable) -> Iterator[tuple[str, bytes]]:
        """Return the paths and contents of the files of a table, one at a time.

        Raises:
            CorruptDataError: A file has changed; names it.
        """
        for name, file in self.info.files.items():
            if name.startswith(f"{table.folder}/"):
                yield self.folder.place(name), self._content(name, file)

    def verify(self) -> None:
        """Compare the digests of all files. Raises ``CorruptDataError`` for the first that differs."""
        for name, file in self.info.files.items():
            self._content(name, file)

    def _content(self, name: str, file: SavepointFile) -> bytes:
        data = self.folder.read(name)
        if data is None or sha256(data).hexdigest() != file.sha256:
            raise CorruptDataError(f"{self.folder.place(name)} was changed since the savepoint was taken. {_RESTORE}")
        return data


def check_files(folder: Folder, info: SavepointInfo) -> None:
    """Compare the names and sizes of the files in ``folder`` with the description, without reading them.

    Raises:
        CorruptDataError: A file is missing, foreign, a symbolic link, or has another size; names it.
    """
    for inside, expected in sorted(_expected(info).items()):
        for name in folder.links(inside):
            if not _is_hidden(name):
                raise CorruptDataError(
                    f"{folder.place(f'{inside}/{name}' if inside else name)} is a symbolic link, which could lead out "
                    f"of the savepoint. Replace it by what it points to."
                )
        found = {name: size for name, size in folder.sizes(inside).items() if not _is_hidden(name)}
        for name in sorted(found.keys() | expected.keys()):
            place = folder.place(f"{inside}/{name}" if inside else name)
            if name not in expected:
                raise CorruptDataError(f"{place} does not belong to the savepoint. Remove it.")
            size = expected[name]
            if size is not None and name not in found:
                raise CorruptDataError(f"{place} is missing. {_RESTORE}")
            if size is not None and found[name] != size:
                raise CorruptDataError(f"{place} has {found[name]} bytes, not {size}. {_RESTORE}")


def _expected(info: SavepointInfo) -> dict[str, dict[str, int | None]]:
    """Return for each folder of a savepoint its entries: files with their sizes, and other entries with None."""
    folders: dict[str, dict[str, int | None]] = {"": {SAVEPOINT_FILE: None, "state": None}, "state": {}}
    for name, file in info.files.items():
        folder, _, own_name = name.rpartition("/")
        folders.setdefault(folder, {})[own_name] = file.size
    for inside in [table.folder for table in info.tables]:
        folders.setdefault(inside, {})
        while inside != "state":
            inside, _, own_name = inside.rpartition("/")
            folders.setdefault(inside, {})[own_name] = None
    return folders


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)  # as for Spark, which does not read them
