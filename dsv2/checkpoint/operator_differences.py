"""Compares the descriptions of one operator in two programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from dsv2.checkpoint.class_changes import class_changes
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.program import AggregatesDescription, InputDescription, KeyDescription, OperatorDescription
from dsv2.checkpoint.state_differences import state_differences
from dsv2.checkpoint.type_shapes import Renamed, fits_into, shown
from dsv2.graph import Exchange

Operators: TypeAlias = Mapping[str, OperatorDescription]
"""The operators of a program, by uid."""

_BY_PARALLELISM = {Exchange.FORWARD, Exchange.REBALANCE}  # the parallelism decides between the two
_AT_SOURCE, _AS_SUBTASKS = "the tasks that read its source", "subtasks of its own"
_OTHER_UID = "with another uid the operator begins with empty state"


def at(uid: str, location: str) -> str:
    """Name an operator in a difference."""
    return f"operator {uid!r} (defined at {location})"


def named(uid: str, operators: Operators) -> str:
    """Name one of the described ``operators`` in a difference. One that dsv2 has added is a part of the user's step."""
    operator = operators[uid]
    if operator.part_of:
        return f"a part of {operator.part_of} (defined at {operator.defined_at})"
    return at(uid, operator.defined_at)


def sender(uid: str, operators: Operators) -> str:
    """Name one of the described ``operators``, or one that was dropped, as the origin of an input."""
    return named(uid, operators) if uid in operators and operators[uid].part_of else repr(uid)


def operator_differences(
    uid: str, before: Operators, now: Operators, same_python: bool, renamed: Renamed
) -> Iterator[Difference]:
    """Compare operator ``uid`` of two programs.

    ``before`` and ``now``: Their operators, by uid. ``same_python``: Whether digests can be compared.
    """
    return _Comparison(uid, before, now, same_python, renamed).differences()


class _Comparison:
    def __init__(self, uid: str, before: Operators, now: Operators, same_python: bool, renamed: Renamed) -> None:
        self._uid = uid
        self._before = before
        self._now = now
        self._old = before[uid]
        self._new = now[uid]
        self._same_python = same_python
        self._renamed = renamed

    def differences(self) -> Iterator[Difference]:
        yield from self._of_parts()
        if len(self._old.inputs) == len(self._new.inputs):
            yield from self._of_inputs()
        elif self._old.kind == self._new.kind:  # a union
            counts = len(self._old.inputs), len(self._new.inputs)
            yield self._found(f"its number of inputs was {counts[0]} and is now {counts[1]}", True)
        for name in (name for name in self._new.states if name in self._old.states):  # others start empty
            for text, advice in state_differences(self._old.states[name], self._new.states[name], self._renamed):
                yield self._found(f"state {name!r}: {text}", False, advice)
        if len(self._old.output_keys) == len(self._new.output_keys):
            yield from self._of_outputs()

    def _found(self, text: str, carried: bool, advice: str | None = None) -> Difference:
        return Difference(self._uid, f"{named(self._uid, self._now)}: {text}", carried, advice)

    def _of_parts(self) -> Iterator[Difference]:
        old, new = self._old, self._new
        if old.kind != new.kind:
            yield self._found(f"its kind was {old.kind.value} and is now {new.kind.value}", False, _OTHER_UID)
        parallelism = () if old.stateless and new.stateless else ("parallelism", "max_parallelism")
        for name in parallelism:
            if (was := getattr(old, name)) != (is_now := getattr(new, name)):
                yield self._found(f"its {name.replace('_', ' ')} was {was} and is now {is_now}", True)
        if old.stateless != new.stateless:
            ran, runs = (_AT_SOURCE if one.stateless else _AS_SUBTASKS for one in (old, new))
            yield self._found(f"it ran in {ran} and now runs in {runs}", True)
        yield from self._of_split_sources()
        if old.needs_clock != new.needs_clock:  # Spark stores timeouts with the state
            text = f"its use of processing-time timers was {old.needs_clock} and is now {new.needs_clock}"
            yield self._found(text, True)
        if old.state_layout != new.state_layout:
            text = f"the content of its state was {old.state_layout} and is now {new.state_layout}"
            yield self._found(text, False, _OTHER_UID)
        if old.aggregates is not None and new.aggregates is not None:
            yield from self._of_aggregates(old.aggregates, new.aggregates)

    def _of_aggregates(self, old: AggregatesDescription, new: AggregatesDescription) -> Iterator[Difference]:
        """A stored value would be taken for one of the new kind."""
        before, now = old.fields, new.fields
        for name in (name for name in now if name in before):
            if before[name] != now[name]:
                text = f"field {name!r} of its results was {before[name]} and is now {now[name]}"
                yield self._found(text, False, "aggregate into a field with another name, or give it another uid")
        for was, is_now in zip(old.types, new.types, strict=False):
            if not fits_into(was, is_now, self._renamed):
                text = f"its aggregates were kept as {shown(was)} and are now kept as {shown(is_now)}"
                yield self._found(text, False, f"if a class was renamed, register it; {_OTHER_UID}")
        for change in class_changes(old.classes, new.classes, self._renamed):
            yield self._found(change, False)

    def _of_split_sources(self) -> Iterator[Difference]:
        """Positions have a meaning only for the class that wrote them, and for its subclasses."""
        for old, new in zip(self._old.split_sources, self._new.split_sources, strict=False):
            before = list(map(self._renamed, old))
            if before[0] not in new and new[0] not in before:
                text = f"the source was a {old[0]} and is now a {new[0]}, which may read other data at its position"
                advice = (
                    f"give it another uid to read from its beginning, drop the position from the savepoint (edit: "
                    f"set_position({self._uid!r}, None)), or, if the class was renamed or moved, call "
                    f"env.register_type with the new class and formerly={old[0]!r}"
                )
                yield self._found(text, False, advice)

    def _of_inputs(self) -> Iterator[Difference]:
        for number, (old, new) in enumerate(zip(self._old.inputs, self._new.inputs, strict=True)):
            if old.sender != new.sender:
                was, is_now = sender(old.sender, self._before), sender(new.sender, self._now)
                yield self._found(f"the origin of input {number} was {was} and is now {is_now}", True)
            if old.output != new.output:
                yield self._found(f"the output of input {number} was {old.output!r} and is now {new.output!r}", True)
            if old.exchange is not new.exchange and not _follows_parallelism(old, new):
                was, is_now = old.exchange.value, new.exchange.value
                yield self._found(f"the partitioning of input {number} was {was!r} and is now {is_now!r}", True)
            yield from self._of_key(f"input {number}", old.key, new.key)

    def _of_outputs(self) -> Iterator[Difference]:
        for number, (old, new) in enumerate(zip(self._old.output_keys, self._new.output_keys, strict=True)):
            yield from self._of_key(f"output {number}", old, new)

    def _of_key(self, place: str, old: KeyDescription | None, new: KeyDescription | None) -> Iterator[Difference]:
        """The state of the operator is stored under its keys. Without state, they may change."""
        carried = not (self._old.keeps_state or self._new.keeps_state)
        what = f"the key selector of {place}"
        if old is None or new is None:
            if old is not new:
                yield self._found(f"{what} has changed", carried)
        elif new.version is not None:
            # The user declares by it that the keys are unchanged. A selector without a version has version 1.
            version = old.version or 1
            if version != new.version:
                yield self._found(f"{what} was version {version} and is now version {new.version}", carried)
        elif self._same_python and old.digest != new.digest:
            advice = f"if all keys stay the same, give it version={old.version or 1}"
            yield self._found(f"{what} has changed", carried, advice)


def _follows_parallelism(old: InputDescription, new: InputDescription) -> bool:
    """Return whether the partitioning differs only because the parallelism of a stateless operator has changed."""
    return old.sender_is_stateless and new.sender_is_stateless and {old.exchange, new.exchange} <= _BY_PARALLELISM
