"""``skip_records`` of ``execute``: records of sources that a run does not process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NoReturn, TypeAlias

from dsv2.base.record_position import Offset, SplitName
from dsv2.errors import ConfigurationError, RecordNotSkippedWarning
from dsv2.graph.plan import Operator, OperatorKind, Plan
from dsv2.sources import DataFrameSource
from dsv2.sources.indexed import IndexedSource

SkippedRecords: TypeAlias = Mapping[str, frozenset[tuple[SplitName, Offset]]]
"""Pairs of split and offset, by the uid of the source. No pairs: earlier requests for its records are withdrawn."""

_EXAMPLE = "skip_records={'orders': [(3, 1042)]}"


def checked_skips(plan: Plan, skip_records: Mapping[str, Collection[tuple[Any, Any]]]) -> SkippedRecords:
    """Check ``skip_records``, whose keys are uids or names of sources.

    Raises:
        ConfigurationError: A source is unknown or cannot skip records, or a position is not a pair of split and offset.
    """
    if not isinstance(skip_records, Mapping):
        raise ConfigurationError(f"skip_records is a dict, such as {_EXAMPLE}, not {skip_records!r}.")
    sources = [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]
    found: dict[str, frozenset[tuple[SplitName, Offset]]] = {}
    for key, positions in skip_records.items():
        source = _source(key, sources)
        if isinstance(source.body, DataFrameSource):
            raise ConfigurationError(
                f"skip_records: the rows of {source}, defined at {source.location}, have no positions, because Spark "
                f"reads them. Leave out the row in the DataFrame, with dataframe.where(...)."
            )
        wanted = _positions(key, positions)
        for split, offset in wanted:
            is_number = isinstance(source.body, IndexedSource) and isinstance(split, str)
            if is_number or (isinstance(offset, str) and offset.isdecimal()):
                raise ConfigurationError(
                    f"skip_records: the position {(split, offset)!r} of {key!r} has a text where {source} has a "
                    f"number. Write it as an error shows it, such as (3, 1042)."
                )
        found[source.uid] = found.get(source.uid, frozenset()) | wanted
    return found


def with_skips(plan: Plan, skips: SkippedRecords) -> Plan:
    """Return ``plan`` with sources that skip these records."""
    operators = (
        replace(operator, skips=skips[operator.uid]) if skips.get(operator.uid) else operator
        for operator in plan.operators
    )
    return replace(plan, operators=tuple(operators)) if skips else plan


def warn_of_missed_skips(plan: Plan, skipped: SkippedRecords) -> None:
    """Warn about each record that a run was to skip and has not read, at the line that created the source."""
    for operator in plan.operators:
        for split, offset in sorted(operator.skips - skipped.get(operator.uid, frozenset()), key=repr):
            warn_of_skip(operator, split, offset, "the run has not read this record")


def warn_of_skip(operator: Operator, split: SplitName, offset: Offset, why: str) -> None:
    """Warn that a record of ``skip_records`` is not skipped."""
    text = f"skip_records: split {split!r}, offset {offset!r} of {operator} was not skipped: {why}."
    operator.warn(text, RecordNotSkippedWarning)


def _source(key: str, sources: Collection[Operator]) -> Operator:
    matches = [source for source in sources if source.uid == key]
    matches = matches or [source for source in sources if source.name == key]
    if not matches:
        _refuse_unknown(key, sources)
    if len(matches) > 1:
        uids = ", ".join(repr(source.uid) for source in matches)
        raise ConfigurationError(f"skip_records: several sources have the name {key!r}. Give the uid: one of {uids}.")
    return matches[0]


def _refuse_unknown(key: object, sources: Iterable[Operator]) -> NoReturn:
    known = dict.fromkeys(source.uid for source in sources)
    names = dict.fromkeys([*known, *(source.name for source in sources)])
    close = get_close_matches(str(key), names, 1)
    advice = f"Did you mean {close[0]!r}?" if close else f"The sources have the uids {', '.join(map(repr, known))}."
    raise ConfigurationError(f"skip_records: the job has no source with the uid or name {key!r}. {advice}")


def _positions(key: str, positions: object) -> frozenset[tuple[SplitName, Offset]]:
    if not isinstance(positions, Collection) or isinstance(positions, str | bytes | Mapping):
        raise ConfigurationError(
            f"skip_records: the positions of {key!r} are a list of pairs of split and offset, such as {_EXAMPLE}, not "
            f"{positions!r}."
        )
    return frozenset(_position(key, position) for position in positions)


def _position(key: str, position: object) -> tuple[SplitName, Offset]:
    match position:
        case [int() | str() as split, int() | str() as offset] if not isinstance(split, bool | bytes):
            if not isinstance(offset, bool):
                return split, offset
    raise ConfigurationError(
        f"skip_records: a position of {key!r} is a pair of split and offset, as an error shows it, such as (3, 1042), "
        f"not {position!r}."
    )
