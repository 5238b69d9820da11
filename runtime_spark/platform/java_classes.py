"""Java classes of Spark's driver."""

from __future__ import annotations

from typing import Any


def java_class(jvm: Any, name: str) -> Any:
    """Return the Java class with the fully qualified ``name``.

    ``jvm.org.apache`` would first search all jars for a class ``org``, then for ``org.apache``, and so on.
    """
    return getattr(jvm, name)
