"""Whether a program may go on with a checkpoint. Compared before anything runs, with all that went on with it."""

from __future__ import annotations

import warnings

from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.stateful import mentioned_names
from dsv2.runtime.serde.codec import Codec
from runtime_spark.key_samples import changed_keys, readable_samples
from runtime_spark.manifest import Manifest, differences, essence
from runtime_spark.notes import Notes

__all__ = ("check_restart", "dropped_state", "refuse_or_warn_of_dropped")


def check_restart(checkpoint: str, plan: Plan, before: Manifest, now: Manifest, notes: Notes, codec: Codec) -> Notes:
    """Compare ``now``, the manifest of ``plan``, with that of the first start and with ``notes``.

    Returns the notes to go on with. Raises ``IncompatibleCheckpointError`` with every difference.
    """
    programs = [before, *notes.programs]
    found = list(dict.fromkeys(change for program in programs for change in differences(program, now)))
    samples = readable_samples(plan, notes.keys, codec)
    found += changed_keys(plan, samples)
    if found:
        listed = "\n".join(f"  - {difference}" for difference in found)
        raise IncompatibleCheckpointError(
            f"The checkpoint {checkpoint} cannot be continued by this program:\n{listed}\n"
            f"Undo the change, or start from a new checkpoint_location (the state begins empty then)."
        )
    known = any(essence(program) == essence(now) for program in programs)
    return Notes(notes.programs if known else [*notes.programs, now], [s for s, _ in samples], notes.fields)


def dropped_state(plan: Plan, programs: list[Manifest], fields: dict[str, list[str]]) -> list[tuple[Operator, str]]:
    """The operators of which the checkpoint holds states or fields that ``plan`` does not ask for; and what these are.

    ``programs``: the manifests of those that wrote it. ``fields``: per uid the names of those that were kept.
    """
    dropped = []
    for operator in plan.operators:
        if operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
            continue
        held = {name for program in programs for name in program["operators"].get(operator.uid, {}).get("states", ())}
        declared = programs[-1]["operators"][operator.uid]["states"]
        states = [f"the state {name.removesuffix(' (further)')!r}" for name in sorted(held - declared.keys())]
        gone = sorted(set(fields.get(operator.uid, ())) - mentioned_names(operator.function))
        if states or gone:
            dropped.append((operator, ", ".join([*states, *(f"the field {name!r} of its function" for name in gone)])))
    return dropped


def refuse_or_warn_of_dropped(checkpoint: str, dropped: list[tuple[Operator, str]], *, allowed: bool) -> None:
    """Warn of each, at the line that made the operator. Raises ``IncompatibleCheckpointError`` if not ``allowed``."""
    texts = [
        f"operator {operator.uid!r} (defined at {operator.location}): the checkpoint holds {what}, which the program "
        f"does not ask for. If it has another name now, that one begins empty: give it back the old one"
        for operator, what in dropped
    ]
    if texts and not allowed:
        listed = "\n".join(f"  - {text}" for text in texts)
        raise IncompatibleCheckpointError(
            f"The program does not take over all of the checkpoint {checkpoint}:\n{listed}\n"
            f"To do without what it holds, leave out allow_non_restored_state=False."
        )
    for (operator, _), text in zip(dropped, texts, strict=True):
        file, _, line = operator.location.rpartition(":")
        warnings.warn_explicit(f"{checkpoint}: {text}.", DroppedStateWarning, file, int(line))
