"""All ways that need neither Spark nor a server."""

from __future__ import annotations

from tests.values.formats import formats
from tests.values.on_local import columns, files, jobs
from tests.values.stored import stored
from tests.values.ways import Way


def local_ways() -> list[Way]:
    """All ways on the local runtime."""
    return [*jobs(), *stored(), *columns(), *formats(), *files()]
