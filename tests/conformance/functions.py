"""Process functions that several programs use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from dsv2 import Collector, NonPartitionedContext, PartitionedContext, TwoOutputPartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.watermark import Watermark

T = TypeVar("T")
NUMBERS: Sequence[int] = range(12)
FEW: Sequence[int] = range(2)


def mod3(number: int) -> int:
    """A key selector with three keys."""
    return number % 3


def parity(number: int) -> int:
    """A key selector with two keys."""
    return number % 2


def is_of_others(watermark: Watermark) -> bool:
    """Return whether the watermark comes from other programs of the job, because they use event time."""
    return EventTimeExtension.is_event_time_watermark(watermark)


def itself(record: Any) -> Any:
    """Key or time: the record itself."""
    return record


def one_key(record: object) -> int:
    """A key selector with one key."""
    return 0


class Seen(NamedTuple):
    """A record as a function saw it. ``key`` is the current key. ``input`` is 1 or 2, or 0 at the end of input."""

    value: Any
    subtask: int
    key: Hashable = None
    input: int = 1


def key_of(seen: Seen) -> int:
    """The key under which a record was seen."""
    assert isinstance(seen.key, int)
    return seen.key


def value_of(seen: Seen) -> int:
    """The number that was seen."""
    number: int = seen.value
    return number


class Pass(OneInputStreamProcessFunction[T, T], Generic[T]):
    """Forwards its input."""

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        output.collect(record)


class Stamped(OneInputStreamProcessFunction[Any, Any]):
    """Emits records with their timestamps."""

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect((record, ctx.timestamp))


class PassBoth(TwoOutputStreamProcessFunction[Any, Any, Any]):
    """Forwards its input to both outputs."""

    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(record)
        second_output.collect(record)


class PassEither(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    """Forwards its first input."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


class PassTwo(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    """Forwards both inputs."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)


class PassMain(TwoInputBroadcastStreamProcessFunction[Any, Any, Any]):
    """Forwards its main input."""

    def process_record_from_non_broadcast_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_broadcast_input(self, record: Any, ctx: Any) -> None: ...


class Located(OneInputStreamProcessFunction[Any, Seen]):
    """Emits where each record was seen and, if ``keyed``, under which key."""

    def __init__(self, keyed: bool = False) -> None:
        self.keyed = keyed

    def process_record(self, record: Any, output: Collector[Seen], ctx: PartitionedContext[Seen]) -> None:
        output.collect(_seen(record, ctx, self.keyed))


class Split(TwoOutputStreamProcessFunction[Any, Seen, Seen]):
    """Emits even numbers to the first output, odd ones to the second, and 0 to both."""

    def __init__(self, keyed: bool = False) -> None:
        self.keyed = keyed

    def process_record(
        self,
        record: Any,
        first_output: Collector[Seen],
        second_output: Collector[Seen],
        ctx: TwoOutputPartitionedContext[Seen, Seen],
    ) -> None:
        key = ctx.state_manager.current_key if self.keyed else None
        seen = Seen(record, ctx.task_info.index_of_this_subtask, key)
        if record % 2 == 0:
            first_output.collect(seen)
        if record % 2 == 1 or record == 0:
            second_output.collect(seen)


class Merge(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Seen]):
    """Emits where each record of either input was seen and, if ``keyed``, under which key."""

    def __init__(self, keyed: bool = False) -> None:
        self.keyed = keyed

    def process_record_from_first_input(
        self, record: Any, output: Collector[Seen], ctx: PartitionedContext[Seen]
    ) -> None:
        output.collect(_seen(record, ctx, self.keyed, 1))

    def process_record_from_second_input(
        self, record: Any, output: Collector[Seen], ctx: PartitionedContext[Seen]
    ) -> None:
        output.collect(_seen(record, ctx, self.keyed, 2))


class Rules(TwoInputBroadcastStreamProcessFunction[Any, Any, Seen]):
    """Emits where each record was seen, and each rule in every partition. At the end it emits all rules in every
    partition."""

    def __init__(self, keyed: bool = False) -> None:
        self.keyed = keyed
        self.rules: list[Any] = []
        self.inputs_left = 2

    def process_record_from_non_broadcast_input(
        self, record: Any, output: Collector[Seen], ctx: PartitionedContext[Seen]
    ) -> None:
        output.collect(_seen(record, ctx, self.keyed, 1))

    def process_record_from_broadcast_input(self, record: Any, ctx: NonPartitionedContext[Seen]) -> None:
        self.rules.append(record)
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(_seen(record, partition, self.keyed, 2)))

    def end_non_broadcast_input(self, ctx: NonPartitionedContext[Seen]) -> None:
        self._end(ctx)

    def end_broadcast_input(self, ctx: NonPartitionedContext[Seen]) -> None:
        self._end(ctx)

    def _end(self, ctx: NonPartitionedContext[Seen]) -> None:
        self.inputs_left -= 1
        if self.inputs_left == 0:
            rules = tuple(sorted(self.rules))
            ctx.apply_to_all_partitions(
                lambda output, partition: output.collect(_seen(rules, partition, self.keyed, 0))
            )


def _seen(value: Any, ctx: PartitionedContext[Seen], keyed: bool, input_number: int = 1) -> Seen:
    key: Any = ctx.state_manager.current_key if keyed else None
    return Seen(value, ctx.task_info.index_of_this_subtask, key, input_number)


def check_keys(parallelism: int, seen: list[Seen], key: Callable[[int], Hashable] = mod3) -> None:
    """Check that every record was seen under its key, and every key in one subtask."""
    assert all(record.key == key(record.value) for record in seen)
    assert len({(record.key, record.subtask) for record in seen}) == len({record.key for record in seen})
    assert all(0 <= record.subtask < parallelism for record in seen)


def check_rules(
    parallelism: int, seen: list[Seen], *, rules: Sequence[int], main: Sequence[int], keys: set[int] | None = None
) -> None:
    """Check the output of ``Rules`` for ``main``, with ``keys`` if that is keyed by ``mod3``, and ``rules``."""
    records = [record for record in seen if record.input == 1]
    shown = Counter((record.value, record.subtask, record.key) for record in seen if record.input == 2)
    final = [record for record in seen if record.input == 0]
    assert sorted(map(value_of, records)) == list(main)
    assert {record.value for record in final} == {tuple(rules)}
    if keys is None:
        assert sorted(record.subtask for record in final) == list(range(parallelism))
        assert shown == Counter((rule, subtask, None) for rule in rules for subtask in range(parallelism))
        return
    # A rule reaches the keys that exist when it arrives. At the end all keys exist.
    assert {record.key: 1 for record in final} == Counter(record.key for record in final)
    owners = {record.key: record.subtask for record in final}
    assert set(owners) == keys
    assert set(shown.values()) <= {1}
    assert all(owners[key] == subtask for _, subtask, key in shown)
    check_keys(parallelism, records)
    assert {record.key: record.subtask for record in records} == owners
