"""Compares a program with those that wrote a checkpoint, on every runtime."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from dsv2.checkpoint.description import Description
from dsv2.checkpoint.difference import Difference, listed
from dsv2.checkpoint.differences import differences
from dsv2.checkpoint.key_samples import KeySample, changed_keys, readable_samples
from dsv2.checkpoint.operator_differences import at
from dsv2.checkpoint.stored_classes import unreadable_classes
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.graph import Operator, Plan
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry


def restart_differences(
    plan: Plan,
    programs: Sequence[Description],
    now: Description,
    types: TypeRegistry,
    keys: Sequence[KeySample],
    others: Iterable[Difference] = (),
) -> list[Difference]:
    """List the differences with which ``plan`` cannot continue from a checkpoint as it is.

    Args:
        plan: The program that is to start.
        programs: The programs that wrote the state, oldest first.
        now: The description of ``plan``.
        types: The classes of ``plan``.
        keys: Samples of keys in the checkpoint.
        others: Differences that the runtime has found.
    """
    found = list(dict.fromkeys(change for earlier in programs for change in differences(earlier, now)))
    found += others
    found += unreadable_classes(programs, now, types)
    return found + changed_keys(plan, readable_samples(plan, keys, Codec(types)))


def refusal(checkpoint: str, found: Sequence[Difference]) -> IncompatibleCheckpointError:
    """Return the error for a program with these differences. ``checkpoint``: Names the checkpoint."""
    if all(difference.carried for difference in found):
        ways_out = (
            "Undo the changes, or start with on_change='migrate', which takes a savepoint of this checkpoint and "
            "continues with it."
        )
    else:
        ways_out = (
            "Undo the changes that a savepoint does not carry, or start from a new checkpoint_location with empty "
            "state."
        )
    return IncompatibleCheckpointError(
        f"This program cannot continue from the checkpoint {checkpoint}:\n{listed(found)}\n{ways_out}"
    )


def refuse_or_warn_of_dropped(checkpoint: str, dropped: Sequence[tuple[Operator, str]], *, allowed: bool) -> None:
    """Warn about each dropped state, at the line that created the operator.

    Raises:
        IncompatibleCheckpointError: State is dropped, but this is not ``allowed``.
    """
    texts = [
        f"{at(operator.uid, operator.location)}: the checkpoint holds {what}, which the program no longer uses. If it "
        f"was renamed, the new name begins empty; change it back to the old name"
        for operator, what in dropped
    ]
    if texts and not allowed:
        lines = "\n".join(f"  - {text}" for text in texts)
        raise IncompatibleCheckpointError(
            f"The program does not restore all state of the checkpoint {checkpoint}:\n{lines}\n"
            f"To drop that state, start with allow_dropped_state=True."
        )
    for (operator, _), text in zip(dropped, texts, strict=True):
        file, _, line = operator.location.rpartition(":")
        warnings.warn_explicit(f"{checkpoint}: {text}.", DroppedStateWarning, file, int(line))
