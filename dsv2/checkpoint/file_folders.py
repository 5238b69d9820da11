"""The folders to which the file sinks of a program write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dsv2.base.folders import Folder
from dsv2.graph import Plan
from dsv2.sinks import FileSink
from dsv2.sinks.paths import normalized, without_password


def folders_of(plan: Plan, open_folder: Callable[[str], Folder]) -> dict[str, str]:
    """Return the folders of the file sinks of ``plan``, by uid, in a form that can be stored and opened again."""
    return {
        operator.uid: without_password(open_folder(operator.body.path).uri("").rstrip("/"))
        for operator in plan.operators
        if isinstance(operator.body, FileSink)
    }


def left_folders(before: Iterable[tuple[str, str]], now: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the folders to which no sink of a program writes any more.

    Args:
        before: The uids of the sinks of earlier programs, and their folders. Empty: it is not a file sink.
        now: The folders of the program, by uid.
    """
    used = {normalized(folder) for folder in now.values()}
    return [(uid, folder) for uid, folder in before if folder and normalized(folder) not in used]
