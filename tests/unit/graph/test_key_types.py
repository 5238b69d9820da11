"""Keys that can never be equal are refused while the plan is built, if the key selectors declare their types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any, NewType
from uuid import UUID

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import PlanError

Name = NewType("Name", str)


class Color(StrEnum):
    RED = "red"


def text(record: Any) -> str:
    return str(record)


def name(record: Any) -> Name:
    return Name(str(record))


def number(record: Any) -> int:
    return int(record)


def amount(record: Any) -> Decimal:
    return Decimal(record)


def day(record: Any) -> date:
    return date.min


def moment(record: Any) -> datetime:
    return datetime.min


def pair(record: Any) -> tuple[str, int]:
    return str(record), 1


def color(record: Any) -> Color:
    return Color.RED


def either(record: Any) -> str | int:
    return 1


def unresolvable(record: Any) -> Missing:  # type: ignore[name-defined]  # noqa: F821 - what it is for
    return 1


def silent(record):  # type: ignore[no-untyped-def]
    return 1


class Object:
    def __call__(self, record: Any) -> bytes:
        return b""


REFUSED: list[tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = [
    (text, number, "returns str, the key selector of input 2 returns numbers"),
    (str, int, "returns str, the key selector of input 2 returns numbers"),
    (amount, name, "returns numbers, the key selector of input 2 returns str"),
    (day, text, "returns dates, the key selector of input 2 returns str"),
    (moment, text, "returns dates, the key selector of input 2 returns str"),
    (pair, text, "returns tuple, the key selector of input 2 returns str"),
    (Object(), text, "returns bytes, the key selector of input 2 returns str"),
    (UUID, text, "returns UUID, the key selector of input 2 returns str"),
]
# Types that may equal any other, and undeclared types, match every type.
ACCEPTED: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (text, name), (number, amount), (float, bool), (day, moment), (pair, tuple), (color, text), (color, number),
    (either, text), (unresolvable, text), (silent, text), (lambda record: 1, text), (len, text),
    (partial(text), number),
]  # fmt: skip


@pytest.mark.parametrize(("first", "second", "said"), REFUSED)
def test_keys_that_are_never_equal_are_refused(
    env: ExecutionEnvironment, s: Any, first: Any, second: Any, said: str
) -> None:
    """Flink: "Key types if input KeyedStreams don't match"."""
    s.non_keyed.key_by(first).connect_and_process(s.other_non_keyed.key_by(second), s.two_in).with_uid("both")  # here
    with pytest.raises(
        PlanError, match=f"(uid 'both').*: the key selector of input 1 {said}: these are never"
    ) as refused:
        env.build_plan()
    assert f"{__file__}:" in str(refused.value)


@pytest.mark.parametrize(("first", "second"), ACCEPTED)
def test_keys_that_may_be_equal_are_accepted(env: ExecutionEnvironment, s: Any, first: Any, second: Any) -> None:
    for one, other in ((first, second), (second, first)):
        s.non_keyed.key_by(one).connect_and_process(s.other_non_keyed.key_by(other), s.two_in)
    assert env.build_plan()


@pytest.mark.parametrize(
    ("build", "output"),
    [
        (lambda s: s.keyed.process(s.one, number), 1),
        (lambda s: s.keyed.process(s.two_out, first_key_selector=text, second_key_selector=number), 2),
        (lambda s: s.keyed.connect_and_process(s.other_keyed, s.two_in, number), 1),
        (lambda s: s.keyed.connect_and_process(s.broadcast, s.with_side, number), 1),
    ],
)
def test_keys_that_an_output_cannot_keep_are_refused(
    env: ExecutionEnvironment, s: Any, build: Any, output: int
) -> None:
    """Flink detects it with the first record."""
    build(s)
    with pytest.raises(PlanError, match=f"the key selector of output {output} returns numbers: these are never equal"):
        env.build_plan()
