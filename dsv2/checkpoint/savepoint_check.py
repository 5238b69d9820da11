"""Checks before a job runs whether its program can start from a savepoint."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from dsv2.checkpoint.description import Description, describe
from dsv2.checkpoint.difference import Difference, listed
from dsv2.checkpoint.dropped_state import dropped_state
from dsv2.checkpoint.key_samples import KeySample
from dsv2.checkpoint.operator_differences import at
from dsv2.checkpoint.restart import restart_differences
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.runtime.serde.type_registry import TypeRegistry


def check_savepoint(
    savepoint: str,
    plan: Plan,
    programs: Sequence[Description],
    types: TypeRegistry,
    *,
    allow_dropped_state: bool,
    fields: Mapping[str, Sequence[str]] | None = None,
    holding: Sequence[str] = (),
    keys: Sequence[KeySample] = (),
) -> list[Difference]:
    """Check that ``plan`` can start from a savepoint. Called before anything runs. Warns of state that is dropped.

    Args:
        savepoint: Names the savepoint in errors.
        plan: The program that is to start.
        programs: The programs that wrote the state in the savepoint, oldest first.
        types: The classes of ``plan``.
        allow_dropped_state: Whether operators, states and fields may be missing in ``plan``.
        fields: For each uid, the names of the stored fields of its function.
        holding: The uids of operators that hold back records.
        keys: Samples of keys in the savepoint.

    Returns:
        All differences, which the start carries.

    Raises:
        IncompatibleCheckpointError: A change is not carried, or state would be dropped; the message lists every
            difference.
    """
    changed = restart_differences(plan, programs, describe(plan), types, keys)
    changed += lost_records(plan, programs[-1], holding)
    found = carried_differences(
        "savepoint", savepoint, plan, programs, changed, allow_dropped_state=allow_dropped_state, fields=fields
    )
    warn_of_dropped(savepoint, found)
    return found


def warn_of_dropped(path: str, found: Iterable[Difference]) -> None:
    """Warn about the state that the program drops. ``path``: Where the state is."""
    for difference in found:
        if difference.drops_state:
            warnings.warn(f"{path}: {difference}.", DroppedStateWarning, stacklevel=3)


def carried_differences(
    stored_in: Literal["checkpoint", "savepoint"],
    path: str,
    plan: Plan,
    programs: Sequence[Description],
    changed: Iterable[Difference],
    *,
    allow_dropped_state: bool,
    fields: Mapping[str, Sequence[str]] | None = None,
) -> list[Difference]:
    """Check that a savepoint carries the changes of a program, or that one taken of a checkpoint would.

    Args:
        stored_in: Where the state is.
        path: Its path.
        plan: The program that is to start.
        programs: The programs that wrote the state, oldest first.
        changed: The differences of the program (``restart_differences``), and those that were found otherwise.
        allow_dropped_state: Whether operators, states and fields may be missing in ``plan``.
        fields: For each uid, the names of the stored fields of its function.

    Returns:
        These differences, and one for each operator whose state is dropped.

    Raises:
        IncompatibleCheckpointError: As for ``check_savepoint``.
    """
    found = list(changed)
    found += [
        Difference(
            operator.uid,
            f"{at(operator.uid, operator.location)}: the {stored_in} holds {what}, which the program no longer uses",
            carried=True,
            advice="if it was renamed, the new name begins empty",
            drops_state=True,
        )
        for operator, what in dropped_state(plan, programs, fields or {})
    ]
    if stored_in == "checkpoint" and programs[-1]["format_version"] != FORMAT_VERSION:
        advice = "Only the version that wrote it can read it: take a savepoint with that version, and start from it."
    elif not all(difference.carried for difference in found):
        advice = "Undo the changes that a savepoint does not carry"
        advice += "." if stored_in == "savepoint" else ", or start from a new checkpoint_location with empty state."
    elif not allow_dropped_state and any(difference.drops_state for difference in found):
        advice = "State would be dropped. To allow this, start with allow_dropped_state=True."
    else:
        return found
    start = "start" if stored_in == "savepoint" else "continue"
    raise IncompatibleCheckpointError(
        f"This program cannot {start} from the {stored_in} {path}:\n{listed(found)}\n{advice}"
    )


def lost_records(plan: Plan, before: Description, holding: Iterable[str]) -> Iterator[Difference]:
    """Return a difference for each operator that is gone, with the records that it holds back."""
    for uid in sorted(set(holding) - {operator.uid for operator in plan.operators}):
        place = at(uid, before["operators"][uid]["defined_at"])
        text = f"{place} was removed, or has another uid, while it holds back records behind an aligned watermark"
        advice = "keep it, or take the savepoint when no channel is blocked"
        yield Difference(uid, text, carried=True, advice=advice, drops_state=True)
