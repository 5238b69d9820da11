"""Compares the description of a program with that of an earlier one, whose state it is to continue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from dsv2.checkpoint.class_changes import class_changes
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.exchanged_inputs import exchanged_inputs
from dsv2.checkpoint.operator_differences import named, operator_differences
from dsv2.checkpoint.program import ProgramDescription, WatermarkDescription
from dsv2.checkpoint.type_shapes import Renamed, TypeShape, fits_into, shown
from dsv2.graph import OperatorKind
from dsv2.runtime.serde.type_registry import current_name

_OTHER_UID = ", or has another uid"
_OF_WATERMARKS = {  # part of a declaration -> whether a savepoint carries its change
    "type": False,
    "function": False,
    "wait_for_all_channels": False,
    "aligned": False,
    "barrier": False,  # its limits may change freely
    "across_inputs": False,
    "across_inputs_function": False,
    "delivery": True,  # what is kept is the last value delivered
    "strategy": True,  # no state depends on it
    "expires": False,
}


def differences(before: ProgramDescription, now: ProgramDescription) -> list[Difference]:
    """List the differences that prevent ``now`` from continuing after ``before`` in the same checkpoint."""
    found = [*_of_format(before, now), *_removed_and_added(before, now)]
    same_python = before.python == now.python
    renamed = partial(current_name, former_names=now.former_names)
    old, new = before.operators, now.operators
    for uid in (uid for uid in new if uid in old):
        found.extend(operator_differences(uid, old, new, same_python, renamed))
    found.extend(exchanged_inputs(old, new))
    return [*found, *_of_order(before, now), *_of_watermarks(before, now, renamed)]


def _of_format(before: ProgramDescription, now: ProgramDescription) -> Iterator[Difference]:
    was, is_now = before.format_version, now.format_version
    if was != is_now:
        text = f"it was written with state format {was}, but this version of dsv2 writes {is_now}"
        yield Difference("format version", text, carried=True)


def _removed_and_added(before: ProgramDescription, now: ProgramDescription) -> list[Difference]:
    old, new = before.operators, now.operators
    found = []
    for uid in old.keys() - new.keys():
        automatic, keeps_state = old[uid].automatic_uid, old[uid].keeps_state
        text = f"{named(uid, old)} was removed{_OTHER_UID if not old[uid].part_of else ''}"
        continued = f"the operator that continues its state needs with_uid({uid!r})"
        advice = continued if automatic and keeps_state else None
        found.append(Difference(uid, text, carried=True, advice=advice, drops_state=keeps_state))
    for uid in new.keys() - old.keys():
        text = f"{named(uid, new)} is new{_OTHER_UID if not new[uid].part_of else ''}"
        found.append(Difference(uid, text, carried=True))
    return sorted(found, key=str)


def _of_order(before: ProgramDescription, now: ProgramDescription) -> Iterator[Difference]:
    """Spark identifies sources by their order."""
    old, new = (
        [uid for uid, operator in program.operators.items() if operator.kind is OperatorKind.SOURCE]
        for program in (before, now)
    )
    was, is_now = [uid for uid in old if uid in new], [uid for uid in new if uid in old]
    if was != is_now:
        text = f"the order of the sources was {', '.join(was)} and is now {', '.join(is_now)}"
        yield Difference("order of the sources", text, carried=True)


def _of_watermarks(before: ProgramDescription, now: ProgramDescription, renamed: Renamed) -> Iterator[Difference]:
    for identifier in sorted(before.watermarks.keys() | now.watermarks.keys()):
        old, new = before.watermarks.get(identifier), now.watermarks.get(identifier)
        if old is None or new is None:
            text = f"watermark {identifier!r} is {'no longer' if new is None else 'newly'} declared"
            yield Difference(identifier, text, carried=True)
        else:
            for text, carried in _of_watermark(old, new, renamed):
                yield Difference(identifier, f"watermark {identifier!r}: {text}", carried)


def _of_watermark(old: WatermarkDescription, new: WatermarkDescription, renamed: Renamed) -> Iterator[tuple[str, bool]]:
    """Describe the differences, and return whether a savepoint carries them."""
    for part, carried in _OF_WATERMARKS.items():
        if (had := getattr(old, part)) != (has := getattr(new, part)):
            yield f"{part.replace('_', ' ')} was {had} and is now {has}", carried
    for part, was, is_now in (("values", old.values, new.values), ("keys", old.keys, new.keys)):
        same_number = len(was) == len(is_now) or old.type != new.type
        if not same_number or not all(map(partial(fits_into, renamed=renamed), was, is_now)):
            yield f"the type of its {part} was {_shown(was)} and is now {_shown(is_now)}", False
    for change in class_changes(old.classes, new.classes, renamed):
        yield change, False


def _shown(shapes: Iterable[TypeShape]) -> str:
    return " of ".join(map(shown, shapes)) or "none"
