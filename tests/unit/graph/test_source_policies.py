"""Error policies of sources, and ``skip_records``: values that cannot be decoded, and records that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dsv2 import DeadLetter, ErrorPolicy, ExecutionEnvironment, JobError
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.dead_letters import DeadLetters, LetterStatus
from dsv2.errors import ConfigurationError, RecordNotSkippedWarning, UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.jobs.handle import Trigger
from dsv2.local import LocalRuntime
from dsv2.model import RecordBatch, RecordPosition
from dsv2.sinks import CollectSink
from dsv2.sources import DataclassSerializer, DataGeneratorSource, HybridSource, Portion, SplitBatch, SplitSource
from dsv2.testing import ManualClock
from tests.conformance.functions import Stamped
from tests.support import local_environment


@dataclass(frozen=True)
class Part:
    """A part of the texts of a split, from ``begin`` on."""

    name: str
    begin: int

    @property
    def split_id(self) -> str:
        return self.name


class Texts(SplitSource[Any, Part]):
    """Numbers as text, two at a time, without offsets unless ``offsets``."""

    bounded = True
    split_serializer = DataclassSerializer(Part)
    limit_per_batch = 2

    def __init__(self, texts: dict[str, list[str]], decode: Any = int, *, offsets: bool = False) -> None:
        self.texts = texts
        self.decode = decode
        self.offsets = offsets

    def discover(self) -> list[Part]:
        return [Part(name, 0) for name in self.texts]

    def advance(self, split: Part, limit: int | None, /) -> Portion[Part]:
        end = len(self.texts[split.name])
        stop = end if limit is None else min(end, split.begin + limit)
        return Portion(replace(split, begin=stop), stop - split.begin, stop == end)

    def read(self, start: Part, stop: Part, /) -> Iterator[RecordBatch[Any]]:
        numbers = range(start.begin, stop.begin)
        values = [self.texts[start.name][number] for number in numbers]
        if self.decode is None:
            yield RecordBatch(values)
        elif self.offsets:
            yield SplitBatch(values, self.decode, timestamps=list(numbers), offsets=lambda: [n * 10 for n in numbers])
        else:
            yield SplitBatch(values, self.decode)


TEXTS = {"a": ["1", "two", "3"], "b": ["four", "5"]}
LETTERS = ErrorPolicy().dead_letter(ValueError)


def run(source: Any, policy: ErrorPolicy | None = None, **options: Any) -> tuple[list[Any], list[DeadLetter[Any]]]:
    """The records of ``source``, in order of their values, and its dead letters."""
    env, good, bad = local_environment(2), CollectSink[Any](), CollectSink[DeadLetter[Any]]()
    stream = env.from_source(source).with_uid("in")
    if policy is not None:
        stream.with_error_policy(policy)
        if policy.has_dead_letters:
            stream.dead_letters(object).to_sink(bad)
    stream.to_sink(good)
    env.execute("texts", **options)
    return sorted(good.results), bad.results


class TestPolicies:
    def test_failure_names_the_value_and_its_offset(self) -> None:
        with pytest.raises(UserFunctionError) as failed:
            run(Texts({"a": TEXTS["a"]}, offsets=True))
        failure = failed.value
        assert (failure.operator, failure.callback, failure.record) == ("Source (uid 'in')", "decode", "'two'")
        assert failure.position == RecordPosition("in", "a", 10)
        assert "skip_records={'in': [('a', 10)]}" in str(failure)
        assert "with_error_policy(ErrorPolicy().skip(ValueError))" in str(failure)

    def test_undecodable_values_are_skipped(self) -> None:
        assert run(Texts(TEXTS), ErrorPolicy().skip(ValueError)) == ([1, 3, 5], [])

    def test_dead_letters_have_the_value_and_its_position(self) -> None:
        good, letters = run(Texts(TEXTS, offsets=True), LETTERS)
        assert good == [1, 3, 5]
        two, four = sorted(letters, key=lambda letter: str(letter.record), reverse=True)
        assert (two.operator, two.callback, two.record) == ("in", "decode", "two")
        assert (two.error_type, two.position) == ("ValueError", RecordPosition("in", "a", 10))
        assert four.position == RecordPosition("in", "b", 0)

    def test_raw_value_is_set_aside_instead_of_the_value(self) -> None:
        class Numbered(Texts):
            def read(self, start: Part, stop: Part, /) -> Iterator[RecordBatch[Any]]:
                values = list(enumerate(self.texts[start.name][start.begin : stop.begin]))
                yield SplitBatch(values, lambda pair: int(pair[1]), raw=lambda pair: pair[1])

        assert [letter.record for letter in run(Numbered({"a": ["x"]}), LETTERS)[1]] == ["x"]

    def test_timestamps_stay_with_their_records(self) -> None:
        env, sink = local_environment(1), CollectSink[Any]()
        source = Texts({"a": ["0", "x", "2"]}, offsets=True)
        strategy = EventTimeExtension.new_watermark_strategy_builder().per_event_watermark()
        stream = env.from_source(source, watermarks=strategy.build_as_watermark_strategy())
        stream.with_error_policy(ErrorPolicy().skip())
        stream.process(Stamped()).to_sink(sink)
        env.execute()
        assert sink.results == [(0, 0), (2, 2)]

    def test_other_errors_fail_the_job(self) -> None:
        with pytest.raises(UserFunctionError, match="TypeError"):
            run(Texts({"a": ["1"]}, lambda text: text + 1), LETTERS)

    def test_value_is_decoded_again(self) -> None:
        failures = ["1"]

        def decode(text: str) -> int:
            if text in failures:
                failures.remove(text)
                raise ConnectionError("no registry")
            return int(text)

        clock = ManualClock()
        env, sink = ExecutionEnvironment.get_instance(LocalRuntime(clock=clock)), CollectSink[int]()
        policy = ErrorPolicy().retry(ConnectionError, times=1, backoff=timedelta(seconds=5))
        began = clock.now_ms()
        # All values are decoded together first, and then one by one.
        failures.append("1")
        env.from_source(Texts({"a": ["1", "2"]}, decode)).with_uid("in").with_error_policy(policy).to_sink(sink)
        progress = env.execute().progress.operators["in"]
        assert (sink.results, progress.counters) == ([1, 2], {"errors_retried": 1})
        assert clock.now_ms() - began == 5000

    def test_limit_counts_per_micro_batch(self) -> None:
        texts = {"a": ["x", "1", "y", "2"]}
        policy = ErrorPolicy().skip().limit(per_micro_batch=1)
        assert run(Texts(texts), policy) == ([1, 2], [])
        with pytest.raises(UserFunctionError, match="allows 1 failures per micro-batch in a subtask, and this is numb"):
            run(Texts({"a": ["x", "y"]}), policy)

    def test_unavailable_service_fails_the_job(self) -> None:
        def decode(text: str) -> int:
            raise JobError("The registry does not answer.")

        with pytest.raises(UserFunctionError, match="The registry does not answer"):
            run(Texts({"a": ["1"]}, decode), ErrorPolicy().skip())

    def test_parts_of_a_hybrid_source(self) -> None:
        source = HybridSource([Texts({"a": ["1"]}), Texts({"b": ["2", "x"]}, offsets=True)])
        good, [letter] = run(source, LETTERS)
        assert (good, letter.position) == ([1, 2], RecordPosition("in", "1/b", 10))

    def test_letters_that_nothing_reads_are_stored(self, tmp_path: Path) -> None:
        env = local_environment(1)
        env.from_source(Texts(TEXTS)).with_uid("in").with_error_policy(LETTERS).to_sink(CollectSink())
        env.execute(dead_letters=tmp_path)
        letters = DeadLetters.open(tmp_path)
        assert sorted(map(letters.record, letters.letters), key=str) == ["four", "two"]
        assert {letters.status(letter) for letter in letters.letters} == {LetterStatus.NEW}
        assert letters.letters[0].position is not None

    def test_default_of_the_environment_does_not_apply(self) -> None:
        env = local_environment(1)
        env.set_error_policy(ErrorPolicy().skip())
        env.from_source(Texts(TEXTS)).to_sink(CollectSink())
        with pytest.raises(UserFunctionError, match="ValueError"):
            env.execute()


class TestChainedFunctions:
    def test_failure_names_the_position(self) -> None:
        env = local_environment(2)
        stream = env.from_source(Texts(TEXTS, str, offsets=True)).with_uid("in")
        stream.flat_map(str.split).filter(bool).map(int).with_uid("parse").to_sink(CollectSink())
        with pytest.raises(UserFunctionError) as failed:
            env.execute()
        assert failed.value.operator == "Map (uid 'parse')"
        assert failed.value.position in (RecordPosition("in", "a", 10), RecordPosition("in", "b", 0))

    def test_key_selector_of_the_exchange_names_the_position(self) -> None:
        env = local_environment(2)
        stream = env.from_source(Texts({"a": ["1", "two"]}, str, offsets=True)).with_uid("in")
        stream.key_by(int).process(lambda record, output, ctx: None).to_sink(CollectSink())
        with pytest.raises(UserFunctionError) as failed:
            env.execute()
        assert (failed.value.callback, failed.value.position) == ("key selector", RecordPosition("in", "a", 10))

    def test_timestamp_extractor_names_the_position(self) -> None:
        env = local_environment(1)
        strategy = EventTimeExtension.new_watermark_generator_builder(int).build_as_watermark_strategy()
        source = Texts({"a": ["1", "two"]}, str, offsets=True)
        env.from_source(source, watermarks=strategy).with_uid("in").to_sink(CollectSink())
        with pytest.raises(UserFunctionError) as failed:
            env.execute()
        assert (failed.value.callback, failed.value.position) == ("extract_timestamp", RecordPosition("in", "a", 10))

    def test_function_that_does_not_fail_again(self) -> None:
        failures = ["two"]

        def sometimes(text: str) -> str:
            if text in failures:
                failures.remove(text)
                raise ConnectionError(text)
            return text

        env = local_environment(1)
        env.from_source(Texts({"a": ["1", "two"]}, str)).with_uid("in").map(sometimes).to_sink(CollectSink())
        with pytest.raises(UserFunctionError) as failed:
            env.execute()
        assert (failed.value.record, failed.value.position) == ("'two'", None)
        assert "split 'a': begin 0 up to 2" in str(failed.value)


class TestSkippedRecords:
    @pytest.mark.parametrize(
        ("source", "position"),
        [
            (Texts({"a": ["1", "two", "3"]}, offsets=True), ("a", 10)),
            (Texts({"a": ["1", "two", "3"]}), ("a", '{"begin": 0, "name": "a"}#2')),
            (Texts({"a": ["1", "two", "3"]}, None), ("a", '{"begin": 0, "name": "a"}#2')),
            (HybridSource([Texts({"a": ["1"]}), Texts({"a": ["two", "3"]})]), ("1/a", '{"split": 0}#1')),
        ],
    )
    def test_record_is_skipped(self, source: Any, position: tuple[Any, Any]) -> None:
        env, sink = local_environment(1), CollectSink[Any]()

        def build() -> None:
            env.from_source(source).with_uid("in").map(int).with_uid("number").to_sink(sink)

        build()
        with pytest.raises(UserFunctionError) as failed:
            env.execute()
        found = failed.value.position
        assert found is not None
        if "split" not in str(position[1]):
            assert (found.split, found.offset) == position
        build()
        progress = env.execute(skip_records={"in": [(found.split, found.offset)]}).progress.operators["in"]
        assert [record for record in sink.results if record != 1] == [3]
        assert progress.counters["records_skipped"] == 1

    def test_file_is_skipped_by_line(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("1\n\ntwo\n3\nfour\n")
        found, _ = run(FilesSource(tmp_path, text_lines(int)), skip_records={"in": [("a.txt", 3), ("a.txt", 5)]})
        assert found == [1, 3]

    def test_generator_is_skipped_by_index(self) -> None:
        source = DataGeneratorSource(lambda index: 6 // (3 - index), count=6)
        with pytest.raises(UserFunctionError) as failed:
            run(source)
        assert (failed.value.callback, failed.value.position) == ("read", RecordPosition("in", 0, 3))
        assert run(source, skip_records={"in": [(0, 3)]})[0] == [-6, -3, 2, 3, 6]

    def test_several_records_by_the_name_of_the_source(self) -> None:
        env, sink = local_environment(3), CollectSink[int]()
        env.from_collection(list(range(10)), "numbers").to_sink(sink)
        env.execute(skip_records={"numbers": [(0, 9), (0, 0), (0, 4)]})
        assert sorted(sink.results) == [1, 2, 3, 5, 6, 7, 8]

    def test_skipped_record_has_no_event_time(self) -> None:
        env, sink = local_environment(1), CollectSink[Any]()
        generator = EventTimeExtension.new_watermark_generator_builder(int).build_as_watermark_strategy()
        env.from_source(Texts({"a": ["1", "two"]}, str, offsets=True), watermarks=generator).with_uid("in").to_sink(
            sink
        )
        env.execute(skip_records={"in": [("a", 10)]})
        assert sink.results == ["1"]

    def test_batch_mode(self) -> None:
        env, sink = local_environment(2), CollectSink[int]()
        env.set_execution_mode("batch")
        env.from_source(Texts(TEXTS, offsets=True)).with_uid("in").to_sink(sink)
        env.execute(skip_records={"in": [("a", 10), ("b", 0)]})
        assert sorted(sink.results) == [1, 3, 5]

    def test_record_that_never_comes_is_reported(self) -> None:
        told = r"split 'a', offset 7 of Source \(uid 'in'\) was not skipped: the run has not read this record"
        with pytest.warns(RecordNotSkippedWarning, match=told) as warned:
            assert run(Texts({"a": ["1"]}), skip_records={"in": [("a", 7)]})[0] == [1]
        assert warned[0].filename == __file__

    @pytest.mark.parametrize(
        ("skip_records", "told"),
        [
            ({"orders": [(0, 1)]}, r"no source with the uid or name 'orders'. Did you mean 'order'\?"),
            ({"xyz": [(0, 1)]}, r"no source with the uid or name 'xyz'. The sources have the uids 'order', 'b'"),
            ({"out": [(0, 1)]}, "no source with the uid or name 'out'"),
            ({"same": [(0, 1)]}, "several sources have the name 'same'. Give the uid: one of 'order', 'b'"),
            ({"order": (0, 1)}, r"a position of 'order' is a pair of split and offset, .*, not 0"),
            ({"order": [(0, 1, 2)]}, "a position of 'order' is a pair"),
            ({"order": [(0, True)]}, "a position of 'order' is a pair"),
            ({"order": [(0, 1.5)]}, "a position of 'order' is a pair"),
            ({"order": ["01"]}, "a position of 'order' is a pair"),
            ({"order": "0"}, "the positions of 'order' are a list of pairs"),
            ([("order", 0, 1)], "skip_records is a dict"),
        ],
    )
    def test_mistakes_are_refused_before_the_start(self, skip_records: Any, told: str) -> None:
        env = local_environment(1)
        env.from_collection([1], "same").with_uid("order").to_sink(CollectSink()).with_uid("out")
        env.from_collection([1], "same").with_uid("b").to_sink(CollectSink())
        with pytest.raises(ConfigurationError, match=told):
            env.execute(skip_records=skip_records)

    def test_unbounded_source(self) -> None:
        class Endless(Texts):
            bounded = False

        found, _ = run(Endless(TEXTS), ErrorPolicy().skip(), trigger=Trigger.available_now(), skip_records={})
        assert found == [1, 3, 5]
