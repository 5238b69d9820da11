"""Finds inputs of an operator that may have changed places, so that each would get the state of the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias

from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.operator_differences import Operators, named, sender
from dsv2.checkpoint.program import InputDescription, OperatorDescription
from dsv2.graph import OperatorKind

_Output: TypeAlias = tuple[str, int | str]
"""An output of an operator: its uid and the name of the output."""

_ADVICE = (
    "keep the inputs in their former order, and exchange the parameters of the function instead; with another uid the "
    "operator begins with empty state"
)
_ONE_BY_ONE = (
    "if they have not changed places, keep the uid of an operator before one of them for this start, and change it "
    "with the next one"
)


def exchanged_inputs(before: Operators, now: Operators) -> Iterator[Difference]:
    """Compare the origins of the inputs of each operator with state.

    An input is recognized by the output that it is connected to, or by an operator before it that is before no other
    input. ``before`` and ``now``: the operators of two programs, by uid.
    """
    for uid, operator in now.items():
        earlier = before.get(uid)
        if earlier is None or operator.kind is OperatorKind.UNION or not earlier.keeps_state:
            continue
        if len(operator.inputs) == len(earlier.inputs) > 1:
            yield from _compared(uid, now, _Origins(earlier, before), _Origins(operator, now))


def _compared(uid: str, now: Operators, old: _Origins, new: _Origins) -> Iterator[Difference]:
    found = [old.like(new, number) for number in range(len(new.senders))]
    for number, like in enumerate(found):
        if like and number not in like:
            was, is_now = old.name(number), new.name(number)
            text = (
                f"{named(uid, now)}: input {number} came from {was} and now comes from {is_now}, "
                f"as input {like[0]} did, so the inputs would get each other's state"
            )
            yield Difference(uid, text, carried=False, advice=_ADVICE)
            return
    if not any(found) and len(set(old.senders)) > 1 and len(set(new.senders)) > 1:
        senders = ", ".join(map(old.name, range(len(old.senders))))
        text = (
            f"{named(uid, now)}: its inputs came from {senders}, and nothing of that is before any of "
            f"them now, so they may have changed places and get each other's state"
        )
        yield Difference(uid, text, carried=False, advice=_ONE_BY_ONE)


class _Origins:
    """The inputs of ``operator``, one of ``operators``."""

    def __init__(self, operator: OperatorDescription, operators: Operators) -> None:
        self._operators = operators
        self.senders: list[_Output] = [_sender(one) for one in operator.inputs]

    @cached_property
    def own(self) -> list[set[_Output]]:
        """The operators before each input, and before no other one."""
        everything = [self._before(sender) for sender in self.senders]
        return [
            found - set[_Output]().union(*everything[:number], *everything[number + 1 :])
            for number, found in enumerate(everything)
        ]

    def like(self, other: _Origins, number: int) -> list[int]:
        """Return the inputs that input ``number`` of ``other`` may be. Empty: there is nothing to recognize it by."""
        direct, before = other.senders[number], other.own[number]
        return [index for index, own in enumerate(self.own) if self.senders[index] == direct or own & before]

    def name(self, number: int) -> str:
        """Name the operator from which an input comes."""
        return sender(self.senders[number][0], self._operators)

    def _before(self, direct: _Output) -> set[_Output]:
        found, left = {direct}, [direct]
        while left:
            operator = self._operators.get(left.pop()[0])
            further = set() if operator is None else {_sender(one) for one in operator.inputs} - found
            found |= further
            left += sorted(further, key=str)
        return found


def _sender(described: InputDescription) -> _Output:
    return described.sender, described.output
