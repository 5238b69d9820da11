"""The generations of a checkpoint.

A job that is restarted with a changed program continues in a folder of its own below the checkpoint, a new generation,
which begins with a savepoint of the previous one::

    offsets, commits, state, dsv2/...      the first generation
    generations/1/savepoint                what generation 1 begins with
    generations/1/offsets, commits, ...    generation 1
    dsv2/drivers                           the lease, for all generations

The current generation is the last one with a complete micro-batch. The one before it is deleted only when the next one
has a complete micro-batch, so a driver may die at any point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dsv2.base.folders import Folder
from dsv2.checks.json_documents import read_document, write_document

SAVEPOINT = "savepoint"
"""The folder in a generation of the savepoint with which it begins."""

_GENERATIONS = "generations"
_ANCESTRY = "dsv2/generation.json"
_OFFSETS = "offsets"
_OF_THE_FIRST = ("offsets", "commits", "state", "sources", "metadata")
_LEASE = "drivers"


@dataclass(frozen=True)
class Ancestry:
    """The inheritance of a generation from the first generation of its checkpoint.

    Attributes:
        checkpoint_id: The id of the first generation. File sinks know the checkpoint by it.
        savepoint: The savepoint with which the first generation began, or None.
    """

    checkpoint_id: str
    savepoint: str | None

    def write(self, generation: Folder) -> None:
        """Record it before anything else in a new generation."""
        write_document(generation, _ANCESTRY, self)

    @staticmethod
    def read(generation: Folder) -> Ancestry | None:
        """Read it; None for the first generation.

        Raises:
            CorruptDataError: The file is damaged.
        """
        remedy = "It identifies the checkpoint for file sinks. Restore it from a backup."
        return read_document(generation, _ANCESTRY, Ancestry, remedy)


def current_generation(root: Folder) -> Folder:
    """Return the last generation with a complete micro-batch, or the first if none has one."""
    return _generation(root, _current_number(root))


def begun_generation(root: Folder) -> Folder | None:
    """Return the generation after the current one if its first micro-batch has begun, which is not complete."""
    later = _generation(root, _current_number(root) + 1)
    return later if later.numbers(_OFFSETS) else None


def next_generation(root: Folder) -> Folder:
    """Return the folder of the generation after the current one."""
    return _generation(root, _current_number(root) + 1)


def delete_other_generations(root: Folder, kept: Folder) -> None:
    """Delete all generations but one, which is complete, and the savepoint with which it began."""
    for folder in _all(root):
        if folder.path != kept.path:
            delete_generation(root, folder)
    if kept.path != root.path:
        kept.remove(SAVEPOINT)


def delete_generation(root: Folder, folder: Folder) -> None:
    """Delete a generation. If this is interrupted, it counts as one that has not begun."""
    for number in reversed(folder.numbers(_OFFSETS)):
        folder.delete(f"{_OFFSETS}/{number}")
    if folder.path != root.path:
        root.remove(folder.path.removeprefix(f"{root.path}/"))
        return
    for name in _OF_THE_FIRST:
        root.remove(name)
    for name in root.sizes("dsv2"):
        if name != _LEASE:
            root.remove(f"dsv2/{name}")


def _current_number(root: Folder) -> int:
    complete = (number for number in reversed(_later_numbers(root)) if _generation(root, number).numbers("commits"))
    return next(complete, 0)


def _later_numbers(root: Folder) -> list[int]:
    return root.numbers(_GENERATIONS)


def _generation(root: Folder, number: int) -> Folder:
    return root.subfolder(f"{_GENERATIONS}/{number}") if number else root


def _all(root: Folder) -> Iterator[Folder]:
    yield root
    for number in _later_numbers(root):
        yield _generation(root, number)
