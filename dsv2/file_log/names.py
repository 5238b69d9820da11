"""The names of files and folders in the folder of a file sink."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

_ROOT = "_dsv2"  # readers skip names that begin with an underscore
LOG = f"{_ROOT}/log"
"""The folder of the log."""
DATA = f"{_ROOT}/data"
"""The folder of files that are being written, or that are to be merged."""
SEGMENTS = f"{_ROOT}/segments"
"""For each merged file, where the records of each micro-batch end."""
DESCRIPTION = f"{_ROOT}/sink.json"
"""The format, the schemas and the partitioning."""
PENDING = f"{_ROOT}/pending.json"
"""The micro-batch that is written but not committed."""
REPLACING = f"{_ROOT}/replacing.json"
"""A merge whose files are being moved to their places."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_STAGING = re.compile(r"(\d+|merge)-(\d+)-.+")


def is_hidden(path: str) -> bool:
    """Return whether readers that list the folder of the sink skip the file."""
    return any(part.startswith(("_", ".")) for part in path.split("/"))


@dataclass(frozen=True, slots=True)
class Staging:
    """A folder in ``DATA``: one attempt to write a micro-batch or a merge.

    Attributes:
        name: The name of the folder, relative to that of the sink.
        batch: The micro-batch. None: a merge.
        time_ms: When the attempt began.
    """

    name: str
    batch: int | None
    time_ms: int

    @staticmethod
    def of(path: str) -> Staging | None:
        """Return the folder that contains ``path``, relative to that of the sink; None for other files."""
        if not path.startswith(f"{DATA}/"):
            return None
        name = path.removeprefix(f"{DATA}/").partition("/")[0]
        found = _STAGING.fullmatch(name)
        if found is None:
            return None
        return Staging(f"{DATA}/{name}", None if found[1] == "merge" else int(found[1]), int(found[2]))


def partition_folder(path: str) -> str:
    """Return the folders of the partition columns in the path of a file, such as ``day=2024-07-01``; else empty."""
    staging = Staging.of(path)
    inner = path if staging is None else path.removeprefix(f"{staging.name}/")
    return inner.rpartition("/")[0]


def partition_values(folder: str) -> dict[str, str | None]:
    """Return the values of the partition columns that ``partition_folder`` returned."""
    pairs = (part.partition("=") for part in folder.split("/") if part)
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}
