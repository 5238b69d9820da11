"""Programs for lifecycle, fields, keys and counters over all micro-batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.watermark import Watermark, WatermarkHandlingResult, new_builder
from tests.conformance.functions import FEW, NUMBERS, is_of_others, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.watermarks import SendAtEnd


class Diary:
    """Logs calls to a file for each subtask, for callbacks that cannot emit. Works on any runtime."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = str(folder / name)
        self.subtask = -1

    def opened(self, ctx: Any) -> None:
        """Log ``open``. The subtask is known only from here on."""
        self.subtask = ctx.task_info.index_of_this_subtask
        self.note("open")

    def note(self, event: str) -> None:
        """Log ``event``."""
        with open(f"{self.path}.{self.subtask}", "a", encoding="utf-8") as file:
            file.write(f"{event}\n")


def diaries(run: Run, name: str) -> dict[int, list[str]]:
    """The log of each subtask."""
    return {int(file.suffix[1:]): file.read_text(encoding="utf-8").split() for file in run.folder.glob(f"{name}.*")}


class Logged:
    """Logs its lifecycle."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary

    def open(self, ctx: Any) -> None:
        self.diary.opened(ctx)

    def _record(self, record: int, *outputs_and_ctx: Any) -> None:
        self.diary.note(str(record))
        for output in outputs_and_ctx[:-1]:
            output.collect(record)

    def _second_record(self, record: int, *_: Any) -> None:
        self.diary.note(f"second-{record}")

    def _end(self, ctx: Any) -> None:
        self.diary.note("end")

    def _end_second(self, ctx: Any) -> None:
        self.diary.note("end-second")

    def close(self) -> None:
        self.diary.note("close")


# Typed Any so that every kind can use them.
RECORD: Any = Logged._record
SECOND_RECORD: Any = Logged._second_record
END: Any = Logged._end
END_SECOND: Any = Logged._end_second


class OneInput(Logged, OneInputStreamProcessFunction[int, int]):
    """With one input."""

    process_record = RECORD
    end_input = END


class TwoOutputs(Logged, TwoOutputStreamProcessFunction[int, int, int]):
    """With two outputs."""

    process_record = RECORD
    end_input = END


class TwoInputs(Logged, TwoInputNonBroadcastStreamProcessFunction[int, int, int]):
    """With two inputs."""

    process_record_from_first_input = RECORD
    process_record_from_second_input = SECOND_RECORD
    end_first_input = END
    end_second_input = END_SECOND


class Broadcast(Logged, TwoInputBroadcastStreamProcessFunction[int, int, int]):
    """With a broadcast input."""

    process_record_from_non_broadcast_input = RECORD
    process_record_from_broadcast_input = SECOND_RECORD
    end_non_broadcast_input = END
    end_broadcast_input = END_SECOND


class Lifecycle(Program):
    """Functions of every kind are opened once, ended once for each input and closed once, in every subtask.

    This includes subtasks without records. Chained functions are opened before their upstream functions.
    """

    def build(self, p: Pipeline) -> None:
        numbers, few = p.source(NUMBERS), p.source(FEW)
        head = numbers.process(OneInput(Diary(p.folder, "head")))
        p.collect(head.process(OneInput(Diary(p.folder, "chained"))))
        few.process(TwoOutputs(Diary(p.folder, "two-outputs")))
        numbers.key_by(mod3).process(OneInput(Diary(p.folder, "keyed")))
        numbers.connect_and_process(few, TwoInputs(Diary(p.folder, "two-inputs")))
        numbers.key_by(mod3).connect_and_process(few.broadcast(), Broadcast(Diary(p.folder, "broadcast")))
        few.global_().process(OneInput(Diary(p.folder, "global")))

    def check(self, run: Run) -> None:
        p = run.parallelism
        expected: dict[str, tuple[int, Sequence[int], Sequence[int]]] = {
            "head": (p, NUMBERS, ()),
            "chained": (p, NUMBERS, ()),
            "two-outputs": (p, FEW, ()),
            "keyed": (p, NUMBERS, ()),
            "two-inputs": (p, NUMBERS, FEW),
            "broadcast": (p, NUMBERS, list(FEW) * p),
            "global": (1, FEW, ()),
        }
        for name, (subtasks, first, second) in expected.items():
            noted = diaries(run, name)
            assert sorted(noted) == list(range(subtasks)), name
            for events in noted.values():
                assert (events[0], events[-1]) == ("open", "close"), (name, events)
                assert events.count("open") == events.count("close") == events.count("end") == 1, (name, events)
                assert events.count("end-second") == bool(second), (name, events)
                ends = [event for event in events if event.startswith("end")]
                assert events[-2] == ends[-1], (name, events)
                own = [index for index, event in enumerate(events) if event.isdigit()]
                assert all(index < events.index("end") for index in own), (name, events)
            counted = Counter(event for events in noted.values() for event in events)
            for number in {*first, *second}:
                assert counted[str(number)] == list(first).count(number)
                assert counted[f"second-{number}"] == list(second).count(number)


class Remembering(OneInputStreamProcessFunction[int, Any]):
    """Fields of many kinds: set before, in ``open`` and later, modified in place, shared, deleted."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.total = 0
        self.history: list[int] = []
        self.alias = self.history
        self.doomed = "still here"
        self.largest: tuple[int, ...] | None = None

    def open(self, ctx: Any) -> None:
        self.opened_as = ctx.task_info.index_of_this_subtask

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.total += self.step
        self.history.append(record)
        if self.largest is None or (record,) > self.largest:
            self.largest = (record,)
        if hasattr(self, "doomed"):
            del self.doomed

    def end_input(self, ctx: Any) -> None:
        self.alias.append(-1)
        said = (self.opened_as, self.total, tuple(self.history), self.largest, hasattr(self, "doomed"))
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(said))


class Custom(OneInputStreamProcessFunction[int, Any]):
    """Decides itself what is kept: not its file handle."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.file = open("/dev/null", encoding="utf-8")  # noqa: SIM115 - stands for what cannot be pickled

    def __getstate__(self) -> dict[str, Any]:
        return {"numbers": sorted(self.numbers)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.numbers = set(state["numbers"])
        self.file = open("/dev/null", encoding="utf-8")  # noqa: SIM115

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        assert self.file.readable()
        self.numbers.add(record)

    def end_input(self, ctx: Any) -> None:
        numbers = tuple(sorted(self.numbers))
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(numbers))


class Fields(Program):
    """Fields of a function are kept in the next micro-batch."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).process(Remembering(step=2)), "plain")
        p.collect(p.source(NUMBERS).process(Custom()), "custom")

    def check(self, run: Run) -> None:
        shares = [tuple(NUMBERS[lane :: run.parallelism]) for lane in range(run.parallelism)]
        run.expect_all(
            *((lane, 2 * len(share), (*share, -1), (share[-1],), False) for lane, share in enumerate(shares)),
            name="plain",
        )
        run.expect_all(*shares, name="custom")


MARK = new_builder("mark").type_long().combine_function_max().combine_wait_for_all_channels(True).build()


class Dumping(OneInputStreamProcessFunction[int, tuple[Any, ...]]):
    """Counts per key. On the watermark and at the end it visits every key. The key of a record is visited in between as
    well."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        self.counts[key] += 1
        visited: list[int] = []
        ctx.non_partitioned_context.apply_to_all_partitions(
            lambda output, partition: visited.append(partition.state_manager.current_key)
        )
        # After the visit, the current key is the key of the record again.
        output.collect(("record", ctx.state_manager.current_key, record, tuple(sorted(visited))))

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if not is_of_others(watermark):
            self._dump("mark", ctx)
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: Any) -> None:
        self._dump("end", ctx)

    def _dump(self, event: str, ctx: Any) -> None:
        def visit(output: Any, partition: Any) -> None:
            key = partition.state_manager.current_key
            output.collect((event, key, self.counts[key]))

        ctx.apply_to_all_partitions(visit)


class AllKeys(Program):
    """``apply_to_all_partitions`` visits every key so far, also of earlier micro-batches, each as the current key.

    After a restart Flink skips keys until they have a new record (G2).
    """

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).process(SendAtEnd(MARK, 1)).key_by(lambda number: number % 5).process(Dumping()))

    def check(self, run: Run) -> None:
        counts = Counter(number % 5 for number in NUMBERS)
        dumped = [record for record in run.out() if record[0] != "record"]
        assert sorted(dumped) == sorted((event, key, n) for event in ("mark", "end") for key, n in counts.items())
        records = [record for record in run.out() if record[0] == "record"]
        assert all(key == number % 5 and key in visited for _, key, number, visited in records)
        if run.parallelism == 1:
            seen: set[int] = set()
            for _, key, _, visited in records:
                seen.add(key)
                assert visited == tuple(sorted(seen))


class Metered(OneInputStreamProcessFunction[int, int]):
    """Metrics of every kind."""

    def open(self, ctx: Any) -> None:
        ctx.metric_group.gauge("subtasks", self.one)
        self.sizes = ctx.metric_group.histogram("sizes", [3, 6])

    def one(self) -> int:
        return 1

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.metric_group.counter("seen").inc()
        self.sizes.update(record)
        if record % 2:
            ctx.metric_group.counter("odd").inc(record)
            output.collect(record)


class Metrics(Program):
    """Progress counts records, counters, gauges and histograms over the whole job and all subtasks."""

    def build(self, p: Pipeline) -> None:
        metered = p.source(NUMBERS).process(Metered()).with_uid(p.uid("metered")).with_name("Meter")
        p.collect(metered)
        metered.shuffle().map(int).with_uid(p.uid("shuffled")).map(int).with_uid(p.uid("chained"))
        p.source(NUMBERS).key_by(mod3).process(Metered()).with_uid(p.uid("keyed"))

    def check(self, run: Run) -> None:
        metered, odd = run.progress("metered"), [number for number in NUMBERS if number % 2]
        assert metered.name == "Meter"
        assert (metered.records_in, metered.records_out) == (len(NUMBERS), len(odd))
        assert metered.counters == {"seen": len(NUMBERS), "odd": sum(odd)}
        assert run.progress("keyed").counters == metered.counters
        for one in (metered, run.progress("keyed")):
            assert one.gauges == {"subtasks": run.parallelism}
            sizes = one.histograms["sizes"]
            assert sizes.counts[0] == sum(number <= 3 for number in NUMBERS)
            assert (sizes.count, sizes.sum, sizes.min, sizes.max) == (
                len(NUMBERS),
                sum(NUMBERS),
                min(NUMBERS),
                max(NUMBERS),
            )
        shuffled, chained = run.progress("shuffled"), run.progress("chained")
        assert (shuffled.records_in, shuffled.records_out, chained.records_in) == (len(odd),) * 3


class LastWatermark(Program):
    """Progress shows the last delivered watermark of each subtask."""

    def build(self, p: Pipeline) -> None:
        marker = p.source(NUMBERS).process(SendAtEnd(MARK, 1)).with_uid(p.uid("marker"))
        p.collect(marker.shuffle().map(int).with_uid(p.uid("behind")))

    def check(self, run: Run) -> None:
        assert run.progress("behind").watermarks == {MARK.identifier: (1,) * run.parallelism}
        assert run.progress("marker").watermarks == {}


class Facts(OneInputStreamProcessFunction[int, tuple[Any, ...]]):
    """Emits the job and task information of its context."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        job, task = ctx.job_info, ctx.task_info
        output.collect(
            (
                record,
                job.job_name,
                job.execution_mode.value,
                task.task_name,
                task.parallelism,
                task.max_parallelism,
                task.index_of_this_subtask,
                task.attempt_number,
            )
        )


class TaskFacts(Program):
    """Contexts have the right information about job and task."""

    def build(self, p: Pipeline) -> None:
        facts = p.source(NUMBERS).process(Facts()).with_name("Facts").with_max_parallelism(64)
        p.collect(facts)

    def check(self, run: Run) -> None:
        p = run.parallelism
        job = ("conformance", run.setting.mode.value, "Facts")
        run.expect(*((number, *job, p, 64, number % p, 0) for number in NUMBERS))


class Interleaved(OneInputStreamProcessFunction[Any, tuple[int, Any]]):
    """Numbers the records of the subtask, over both inputs."""

    def __init__(self) -> None:
        self.count = 0

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.count += 1
        output.collect((self.count, record))


class NothingTwice(Program):
    """Several exchanges in a row, each numbered by its receivers: no gap and no repetition."""

    def build(self, p: Pipeline) -> None:
        first = p.source(NUMBERS).shuffle().process(Interleaved())
        second = first.key_by(lambda pair: pair[1]).process(Interleaved())
        p.collect(second.global_().process(Interleaved()))

    def check(self, run: Run) -> None:
        assert [count for count, _ in run.out()] == list(range(1, len(NUMBERS) + 1))
        assert sorted(record[1][1][1] for record in run.out()) == list(NUMBERS)
        middle = Counter(record[1][0] for record in run.out())
        assert all(middle[n] >= middle[n + 1] for n, _ in pairwise(sorted(middle)))


PROGRAMS: tuple[Program, ...] = (
    Lifecycle(),
    Fields(),
    AllKeys(),
    Metrics(),
    LastWatermark(),
    TaskFacts(),
    NothingTwice(),
)
