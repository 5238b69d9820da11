"""Findings about a plan, and their severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """The severity of a finding.

    ``WARNING``: the job would hang, lose records, or do nothing useful. ``NOTE``: it works, but at a cost.
    """

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a reader should know.

    Attributes:
        code: The kind of the finding, such as ``driver-sink``. Stable.
        severity: How serious it is.
        operators: The ids of the operators concerned.
        message: What it is, and what follows from it.
        advice: What to do about it.
    """

    code: str
    severity: Severity
    operators: tuple[int, ...]
    message: str
    advice: str


def warning(code: str, operators: tuple[int, ...], message: str, advice: str) -> Finding:
    """Return a finding with the severity ``WARNING``."""
    return Finding(code, Severity.WARNING, operators, message, advice)


def note(code: str, operators: tuple[int, ...], message: str, advice: str) -> Finding:
    """Return a finding with the severity ``NOTE``."""
    return Finding(code, Severity.NOTE, operators, message, advice)
