"""Invalid error policies, and dead letters of another type."""

from __future__ import annotations

from dsv2 import DeadLetter, ErrorPolicy
from tests.typing.given import Given

ErrorPolicy().skip("ValueError")  # E: arg-type
ErrorPolicy().skip(KeyboardInterrupt)  # E: arg-type
ErrorPolicy().retry(ValueError)  # E: call-arg
ErrorPolicy().retry(ValueError, times=3, backoff=1)  # E: arg-type
ErrorPolicy().limit(3)  # E: call-arg


def policies(g: Given) -> None:
    g.env.set_error_policy("skip")  # E: arg-type
    result = g.non_keyed.process(g.one).with_error_policy(ErrorPolicy.skip)  # E: arg-type
    result.dead_letters()  # E: call-arg
    result.dead_letters(int).to_sink(g.int_sink)  # E: arg-type
    g.non_keyed.dead_letters(int)  # E: attr-defined


def number_of(letter: DeadLetter[int]) -> int:
    return letter.record  # E: return-value


def sources_and_sinks(g: Given) -> None:
    g.non_keyed.to_sink(g.int_sink).dead_letters(int).to_sink(g.int_sink)  # E: arg-type
    g.env.execute(skip_records={"orders": 3})  # E: dict-item
    g.env.execute(skip_records={"orders": [(3,)]})  # E: list-item
