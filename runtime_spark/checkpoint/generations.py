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

from dsv2.base.folders import Folder
from dsv2.checkpoint.folder_kinds import FolderKind, check_no_savepoint, kind_of_names
from dsv2.errors import IncompatibleCheckpointError

SAVEPOINT = "savepoint"
"""The folder in a generation of the savepoint with which it begins."""

_GENERATIONS = "generations"
_OFFSETS = "offsets"
_OF_THE_FIRST = ("offsets", "commits", "state", "sources", "metadata")
_LEASE = "drivers"


class Generations:
    """The generations of the checkpoint in ``root``.

    Attributes:
        later: The numbers of the generations after the first one.
        number: The number of the current one: the last with a complete micro-batch, or 0, the first, if none has one.

    Raises:
        ConfigurationError: ``root`` is a savepoint.
        IncompatibleCheckpointError: It is the checkpoint of a local job.
    """

    def __init__(self, root: Folder) -> None:
        self._root = root
        names = root.sizes()
        if (kind := kind_of_names(names)) is FolderKind.LOCAL:
            raise IncompatibleCheckpointError(
                f"{root.path} is the checkpoint of a job in the local runtime. To continue that job on Spark, take a "
                f"savepoint of it, and start with savepoint=... and a new checkpoint_location."
            )
        check_no_savepoint(root.path, kind)
        self.later = root.numbers(_GENERATIONS) if _GENERATIONS in names else []
        complete = (number for number in reversed(self.later) if _generation(root, number).numbers("commits"))
        self.number = next(complete, 0)

    @property
    def current(self) -> Folder:
        """The current generation."""
        return _generation(self._root, self.number)

    @property
    def next(self) -> Folder:
        """The folder of the generation after the current one."""
        return _generation(self._root, self.number + 1)

    @property
    def begun(self) -> Folder | None:
        """The generation after the current one if its first micro-batch has begun, which is not complete."""
        return self.next if self.number + 1 in self.later and self.next.numbers(_OFFSETS) else None


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


def _generation(root: Folder, number: int) -> Folder:
    return root.subfolder(f"{_GENERATIONS}/{number}") if number else root


def _all(root: Folder) -> Iterator[Folder]:
    yield root
    for number in root.numbers(_GENERATIONS):
        yield _generation(root, number)
