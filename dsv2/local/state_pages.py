"""The state of subtasks in a local checkpoint: maps of pages, and one page with the rest of the state."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from dsv2.local.page_index import MapName
from dsv2.local.page_log import PageLog, PageReader, PinnedPages, StoredLogs, open_log
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_budget import PageBudget
from dsv2.runtime.state.page_store import in_entries
from dsv2.runtime.state.rows import RowTable, StateRow, StoredState, rows_of

ROWS = 64
"""The rows of a table in a page. More make micro-batches cheaper that touch most pages, fewer those that touch few."""
_REST = ""  # the map with the state that is not in pages


class StatePages:
    """The pages of all subtasks, with the changes of the running micro-batch."""

    def __init__(self, log: PageLog, budget: PageBudget) -> None:
        self._log = log
        self.budget = budget
        """The memory for decoded pages."""

    def of(self, uid: str, subtask: int) -> SubtaskPages:
        """Return the pages of a subtask. ``uid``: The first operator of its chain."""
        return SubtaskPages(self._log, uid, subtask)

    def replace_all(self) -> None:
        """Remove the state of all subtasks. A ``StoredSubtask`` can still be read until the micro-batch is stored."""
        self._log.replace_all()

    def adopt(self, stored: StoredLogs, places: Container[tuple[str, int]]) -> list[StoredSubtask]:
        """Return the state of the subtasks at ``places`` (uid, subtask), and copy its pages from other logs."""
        if stored.own:
            return [one for one in stored_subtasks(self._log) if (one.uid, one.subtask) in places]
        found: list[StoredSubtask] = []
        for log in [open_log(place, durable=False, writes=False) for place in stored.logs]:
            found += (one for one in stored_subtasks(log) if (one.uid, one.subtask) in places)
            for name in log.names():
                if (name.uid, name.subtask) in places:
                    pages = log.stored(name)
                    for number in pages.numbers():
                        self._log.put(name, number, pages.get(number) or b"")
            log.close()
        return found


class SubtaskPages:
    """The pages of a subtask (``Entries``)."""

    def __init__(self, log: PageLog, uid: str, subtask: int) -> None:
        self._log = log
        self._uid = uid
        self._subtask = subtask
        self._names: dict[str, MapName] = {}

    def get(self, name: str, number: int) -> bytes | None:
        """Return a page, or None."""
        return self._log.get(self._name(name), number)

    def put(self, name: str, number: int, data: bytes) -> None:
        """Set a page."""
        self._log.put(self._name(name), number, data)

    def remove(self, name: str, number: int) -> None:
        """Remove a page."""
        self._log.remove(self._name(name), number)

    def put_rest(self, state: bytes) -> None:
        """Set the state that is not in pages, unless it has not changed."""
        if self.get(_REST, 0) != state:
            self.put(_REST, 0, state)

    def _name(self, name: str) -> MapName:
        found = self._names.get(name)
        if found is None:
            found = self._names[name] = MapName(self._uid, self._subtask, name)
        return found


class StoredSubtask:
    """The state of a subtask after the last micro-batch (``Entries`` that are only read).

    Attributes:
        uid: The first operator of its chain.
        subtask: The subtask.
        rest: The state that is not in pages.
    """

    def __init__(self, log: PageLog | PinnedPages, uid: str, subtask: int) -> None:
        self.uid = uid
        self.subtask = subtask
        self.rest = log.stored(MapName(uid, subtask, _REST)).get(0) or b""
        self._log = log
        self._owner = f"State of operator {uid!r}, subtask {subtask}"
        self._readers: dict[str, PageReader] = {}

    def rows(self, codec: Codec, uid: str | None = None) -> Iterator[tuple[str, StateRow]]:
        """Return the state as rows, each with its operator. ``uid``: The only operator whose rows are returned."""
        return rows_of(self.rest, self.subtask, codec, self._owner, read_tables, in_entries(self, codec), uid)

    def rows_near(self, codec: Codec, uid: str, key: Any) -> Iterator[StateRow]:
        """Return the rows of a key of an operator, and of others in the same pages. Only these pages are read."""
        state = StoredState(self.rest, self.subtask, codec, self._owner, read_tables)
        return state.rows_near(uid, key, in_entries(self, codec))

    def get(self, name: str, number: int) -> bytes | None:
        """Return a page, or None."""
        reader = self._readers.get(name)
        if reader is None:
            reader = self._readers[name] = self._log.stored(MapName(self.uid, self.subtask, name))
        return reader.get(number)

    def put(self, name: str, number: int, data: bytes) -> None:
        """Not used."""
        raise NotImplementedError

    def remove(self, name: str, number: int) -> None:
        """Not used."""
        raise NotImplementedError


def stored_subtasks(log: PageLog | PinnedPages) -> list[StoredSubtask]:
    """Return the state of all subtasks after the last micro-batch."""
    return [StoredSubtask(log, name.uid, name.subtask) for name in sorted(log.names()) if name.name == _REST]


def read_tables(columns: Mapping[str, Any]) -> Mapping[str, RowTable]:
    """Read the state of functions on tables (``ReadTables``)."""
    from dsv2.arrow.keyed.snapshots import stored_columns  # pyarrow is optional

    return stored_columns(columns)
