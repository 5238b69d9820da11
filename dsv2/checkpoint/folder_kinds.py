"""The kind of a folder, a savepoint or the checkpoint of a runtime, by its files."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from dsv2.base.folders import ReadableFolder
from dsv2.errors import ConfigurationError

LOCAL_FILES = "local"
"""The folder of a checkpoint in which the local runtime has its files. Other runtimes refuse such a checkpoint."""
SAVEPOINT_FILE = "savepoint.json"
"""The file with the description of a savepoint."""

_OF_SPARK = {"metadata", "offsets", "commits", "generations"}


class FolderKind(Enum):
    """The content of a folder, as errors name it."""

    SAVEPOINT = "a savepoint"
    LOCAL = "the checkpoint of a job in the local runtime"
    SPARK = "the checkpoint of a job on Spark"
    OTHER = "neither a savepoint nor a checkpoint"


def kind_of_folder(folder: ReadableFolder) -> FolderKind:
    """Return what ``folder`` holds."""
    try:
        return kind_of_names(folder.sizes())
    except NotADirectoryError:
        return FolderKind.OTHER


def kind_of_names(names: Collection[str]) -> FolderKind:
    """Return what a folder with these names holds."""
    if SAVEPOINT_FILE in names:
        return FolderKind.SAVEPOINT
    if LOCAL_FILES in names:
        return FolderKind.LOCAL
    return FolderKind.SPARK if _OF_SPARK.intersection(names) else FolderKind.OTHER


def check_no_savepoint(path: str, kind: FolderKind) -> None:
    """Check the folder of a checkpoint before anything is written. Raises ``ConfigurationError`` for a savepoint."""
    if kind is FolderKind.SAVEPOINT:
        raise ConfigurationError(
            f"{path} is a savepoint, not a checkpoint. To start from it, pass it as savepoint=..., with a new "
            f"folder as checkpoint_location."
        )
