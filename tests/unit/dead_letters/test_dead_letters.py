"""Dead letters that nothing reads: their files, the command line, and savepoints that process them again."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ErrorPolicy, ExecutionEnvironment
from dsv2.base.folders import LocalFolder
from dsv2.cli import main
from dsv2.dead_letters import DeadLetters, LetterStatus
from dsv2.dead_letters.letter import encoded
from dsv2.dead_letters.replay import Replays, check_replays, pending_replay
from dsv2.dead_letters.store import JobLetters, LetterWriter
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.graph import Plan
from dsv2.local import LocalRuntime
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.replay_rows import ReplayPlace
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.testing import ManualClock, Stop, TestSource

POLICY = ErrorPolicy().dead_letter(ValueError)


class Order(NamedTuple):
    customer: str
    amount: Any
    comment: str = ""


def customer_of(order: Order) -> str:
    return order.customer


class Stamp(OneInputStreamProcessFunction[Order, Order]):
    """Gives orders a timestamp."""

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        output.collect_and_overwrite_timestamp(record, len(record.amount))


class Amounts(OneInputStreamProcessFunction[Order, Any]):
    """Emits amounts, which have to be numbers."""

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        output.collect((record, int(record.amount), ctx.timestamp))


class Lengths(OneInputStreamProcessFunction[Order, Any]):
    """Emits any amount."""

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        output.collect((record.amount, ctx.timestamp))


class Timers(OneInputStreamProcessFunction[Order, Any]):
    """Fails in a timer."""

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        ctx.processing_time_manager.register_timer(0)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        raise ValueError("a timer")


ORDERS = [Order("a", "1"), Order("b", "two"), Order("a", "three", "x" * 1000), Order("b", "4")]


class Run(NamedTuple):
    """A run of the job that has stopped after its orders."""

    letters: str
    savepoint: str
    results: list[Any]


def run(folder: Path, function: Any = None, orders: Any = ORDERS, uid: str = "amounts", **options: Any) -> Run:
    runtime = LocalRuntime(batches=[2], clock=ManualClock(0))
    env, sink = ExecutionEnvironment.get_instance(runtime), CollectSink[Any]()
    items = [*orders, Stop(), Order("c", "5"), Stop(), Order("c", "6"), Stop()]
    stamped = env.from_source(TestSource[Order](items)).with_uid("orders").process(Stamp()).with_uid("stamp")
    result = stamped.key_by(customer_of).process(function or Amounts()).with_uid(uid).with_error_policy(POLICY)
    result.to_sink(sink).with_uid("out")
    letters = folder / "letters"
    job = env.execute_async("amounts", **{"dead_letters": letters, **options})
    job.await_termination()
    return Run(str(letters), job.savepoint(folder / f"savepoint {len(list(folder.iterdir()))}"), sink.results)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Do not change it."""
    return run(tmp_path_factory.mktemp("first"))


@pytest.fixture
def own(tmp_path: Path) -> Run:
    return run(tmp_path)


def stored(file: Path) -> list[dict[str, Any]]:
    """The letters of a file, as they were written."""
    letters = map(json.loads, file.read_text().splitlines())
    return [{name: letter[name] for name in letter if name not in ("crc32", "letters_of_batch")} for letter in letters]


class TestFiles:
    def test_people_can_read_them(self, first: Run) -> None:
        (file, _) = sorted(Path(first.letters).glob("*/letters/*.jsonl"))
        letter = json.loads(file.read_text())
        assert {name: letter[name] for name in ("operator", "subtask", "callback", "key", "record", "time")} == {
            "operator": "amounts",
            "subtask": 0,
            "callback": "process_record",
            "key": "'b'",
            "record": "Order(customer='b', amount='two', comment='')",
            "time": "1970-01-01T00:00:00.000+00:00",
        }
        assert letter["error_message"] == "invalid literal for int() with base 10: 'two'"
        assert "int(record.amount)" in letter["traceback"]

    def test_traced_records_have_a_position(self, tmp_path: Path) -> None:
        result = run(tmp_path, trace_records=True)
        letters = DeadLetters.open(result.letters)
        assert [letter.position for letter in letters.letters] == [
            {"source": "orders", "split": 0, "offset": offset} for offset in (1, 2)
        ]
        assert [letters.record(letter, Order) for letter in letters.letters] == ORDERS[1:3]

    def test_record_is_exact(self, first: Run) -> None:
        letters = DeadLetters.open(first.letters)
        _, second = letters.letters
        assert second.record is not None
        assert "(1047 characters)" in second.record
        assert letters.record(second, Order) == ORDERS[2]
        with pytest.raises(CorruptDataError, match=r"Letter 1\.0\.\w+ of operator 'amounts'.*Order"):
            letters.record(second)

    def test_job_without_letters_writes_nothing(self, tmp_path: Path) -> None:
        assert run(tmp_path, orders=ORDERS[:1]).results
        assert not (tmp_path / "letters").exists()

    def test_folder_is_required(self) -> None:
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.from_collection([0]).map(int).with_error_policy(POLICY).to_sink(CollectSink())
        with pytest.raises(ConfigurationError, match=r"nothing reads its dead letters.*dead_letters=a"):
            env.execute()
        with pytest.raises(ConfigurationError, match="is not on the local disk"):
            env.execute(dead_letters="hdfs://somewhere/letters")

    def test_repeated_micro_batch_replaces_its_letters(self, tmp_path: Path, own: Run) -> None:
        folder = LocalFolder(own.letters)
        (job_id,) = folder.sizes()
        letters = JobLetters(folder, job_id)
        entries = stored(Path(letters.path, "letters/0.jsonl"))
        assert letters.batches() == [0, 1]
        LetterWriter(letters, "amounts", None).write(1, [])
        assert letters.batches() == [0], "a corrected program may have none"
        for _ in range(2):
            LetterWriter(letters, "amounts", None).write(1, entries)
        assert [letter.id[:4] for letter in letters.letters()] == ["0.0.", "1.0."]

    def test_job_that_was_continued_elsewhere_stops_writing(self, own: Run) -> None:
        folder = LocalFolder(own.letters)
        (job_id,) = folder.sizes()
        old, new = (LetterWriter(JobLetters(folder, job_id), "amounts", path) for path in ("old", "new"))
        entries = stored(Path(own.letters, job_id, "letters/0.jsonl"))
        old.write(2, entries)
        new.write(2, entries)
        with pytest.raises(ConfigurationError, match="from the checkpoint new"):
            old.write(3, entries)
        new.write(3, entries)

    @pytest.mark.parametrize("damage", ["{", "[]", '{"operator": 1}'])
    def test_damaged_file_is_named(self, own: Run, damage: str) -> None:
        (file, _) = sorted(Path(own.letters).glob("*/letters/*.jsonl"))
        file.write_text(damage)
        with pytest.raises(CorruptDataError, match=r"0\.jsonl, line 1, is not a dead letter"):
            _ = DeadLetters.open(own.letters).letters

    @pytest.mark.parametrize("kept", range(5))
    def test_missing_lines_are_noticed(self, own: Run, kept: int) -> None:
        (file, _) = sorted(Path(own.letters).glob("*/letters/*.jsonl"))
        file.write_bytes(encoded(stored(file) * 4))
        assert len(DeadLetters.open(own.letters).letters) == 5
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:kept]))
        if kept == 4:
            return
        with pytest.raises(CorruptDataError, match=r"0\.jsonl(, line 1, .*one of 4, but| is empty, but).*Restore"):
            _ = DeadLetters.open(own.letters).letters

    def test_changed_bytes_are_noticed(self, own: Run) -> None:
        (file, _) = sorted(Path(own.letters).glob("*/letters/*.jsonl"))
        data, before = file.read_bytes(), DeadLetters.open(own.letters).letters
        for place in range(0, len(data) - 1, 7):
            changed = bytearray(data)
            changed[place] ^= 1
            file.write_bytes(changed)
            try:
                after = DeadLetters.open(own.letters).letters
            except CorruptDataError:
                continue
            # Without the name of the checksum, the line counts as written by hand.
            assert data[place - 7 : place + 7].find(b"crc32") >= 0
            assert [replace(letter, id="") for letter in after] == [replace(letter, id="") for letter in before]


class TestWithoutRecord:
    def test_timer_has_no_record(self, tmp_path: Path) -> None:
        result = run(tmp_path, Timers(), ORDERS[:1])
        letters = DeadLetters.open(result.letters)
        (letter,) = letters.letters
        assert letters.status(letter) is LetterStatus.LOST
        assert letter.obstacle == "on_processing_timer has no record of its own"
        with pytest.raises(ConfigurationError, match="cannot be processed again: on_processing_timer has no record"):
            letters.request_replay([letter])
        with pytest.raises(ConfigurationError, match="on_processing_timer has no record"):
            Savepoint.open(result.savepoint).edit().replay([letter])

    def test_record_that_is_not_data(self, tmp_path: Path) -> None:
        env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False))
        locks = env.from_collection([1]).map(lambda number: threading.Lock())
        locks.map(int).with_error_policy(ErrorPolicy().dead_letter()).to_sink(CollectSink())  # type: ignore[arg-type]
        env.execute(dead_letters=tmp_path)
        (letter,) = DeadLetters.open(tmp_path).letters
        assert letter.payload is None
        assert "its record cannot be stored" in (letter.obstacle or "")


class TestSavepoints:
    def edited(self, of: Run, path: Path) -> str:
        return Savepoint.open(of.savepoint).edit().replay(DeadLetters.open(of.letters).letters).write(path)

    def test_letters_come_first_in_their_order_with_their_timestamps(self, first: Run, tmp_path: Path) -> None:
        again = run(tmp_path, Lengths(), savepoint=self.edited(first, tmp_path / "edited"))
        assert again.results == [("two", 3), ("three", 5), ("5", 1)]

    def test_replayed_only_once(self, first: Run, tmp_path: Path) -> None:
        edited = self.edited(first, tmp_path / "edited")
        with pytest.raises(ConfigurationError, match="was processed again already"):
            Savepoint.open(edited).edit().replay(DeadLetters.open(first.letters).letters)
        again = run(tmp_path, Lengths(), savepoint=edited)
        third = run(tmp_path, Lengths(), savepoint=again.savepoint)
        assert third.results == [("6", 1)]

    def test_renamed_operator(self, first: Run, tmp_path: Path) -> None:
        letters = DeadLetters.open(first.letters).letters
        editor = Savepoint.open(first.savepoint).edit().replay(letters).rename_operator("amounts", "lengths")
        again = run(tmp_path, Lengths(), savepoint=editor.write(tmp_path / "edited"), uid="lengths")
        assert [amount for amount, _ in again.results] == ["two", "three", "5"]

    def test_operator_must_exist(self, first: Run, tmp_path: Path) -> None:
        edited = self.edited(first, tmp_path / "edited")
        with pytest.raises(IncompatibleCheckpointError, match="operator 'amounts' no longer exists"):
            run(tmp_path, Lengths(), savepoint=edited, uid="other", allow_dropped_state=True)

    def test_letters_of_another_job(self, first: Run, own: Run) -> None:
        with pytest.raises(ConfigurationError, match=r"it is of the job local-.*and the savepoint of local-"):
            Savepoint.open(own.savepoint).edit().replay(DeadLetters.open(first.letters).letters)

    def test_unsigned_letters_of_a_signed_job(self, first: Run) -> None:
        letters = DeadLetters.open(first.letters).letters
        with pytest.raises(CorruptDataError, match=r"Letter 0\.0\..* is not signed, and the job has a key"):
            Savepoint.open(first.savepoint).edit().replay(letters[:1], state_key=b"k" * 32)


class Rules(TwoInputBroadcastStreamProcessFunction[int, int, int]):
    """Fails for each rule."""

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None: ...

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        raise ValueError


class TestChecks:
    def plan(self, parallelism: int, *, sources: int = 2) -> Plan:
        env = ExecutionEnvironment.get_instance(runtime="local")
        numbers, rules = (env.from_collection([1], name).with_uid(name) for name in ("numbers", "rules"))
        ruled = numbers.connect_and_process(rules.broadcast(), Rules()) if sources == 2 else numbers.map(int)
        ruled.with_uid("ruled").with_parallelism(parallelism).with_error_policy(POLICY).to_sink(CollectSink())
        return env.build_plan()

    def problem(self, plan: Plan, row: StateRow, uid: str = "ruled", ended: Any = ()) -> str:
        with pytest.raises(IncompatibleCheckpointError, match=r"Change the program, or withdraw the request") as raised:
            check_replays(plan, [(uid, row)], TypeRegistry.of(plan), ended)
        return str(raised.value)

    def test_what_cannot_be_processed_again(self) -> None:
        plan, rule = self.plan(2), ReplayPlace(1, 0, 2).row(1, Codec(StandIns()).dumps((7, None)))
        check_replays(plan, [("ruled", rule)], TypeRegistry.of(plan), ["numbers"])
        assert "failed in each of 2 subtasks, and the parallelism is now 3" in self.problem(self.plan(3), rule)
        assert "no longer has an input 1" in self.problem(self.plan(2, sources=1), rule)
        assert "operator 'numbers' no longer exists" in self.problem(plan, rule, "numbers")
        assert "has received the end of its input" in self.problem(plan, rule, ended=["numbers", "rules"])
        away = type("Away", (Order,), {"__module__": "elsewhere"})
        unreadable = Codec(TypeRegistry([away], (), ())).dumps((away("a", 1), None))
        assert "Away" in self.problem(plan, ReplayPlace(0, 0, 2).row(1, unreadable))

    def test_broadcast_record_returns_to_its_subtask(self, tmp_path: Path) -> None:
        def run(function: Any, **options: Any) -> tuple[str, list[Any]]:
            env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Any]()
            rules = env.from_source(TestSource([5, Stop(), 6, Stop()])).with_uid("rules")
            numbers = env.from_source(TestSource([1, Stop(), 2, Stop()])).with_uid("numbers")
            ruled = numbers.connect_and_process(rules.broadcast(), function).with_uid("ruled").with_parallelism(2)
            ruled.with_error_policy(POLICY).to_sink(sink)
            job = env.execute_async("rules", dead_letters=tmp_path / "letters", **options)
            job.await_termination()
            return job.savepoint(tmp_path / f"savepoint {len(list(tmp_path.iterdir()))}"), sink.results

        class Counted(Rules):
            def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
                ctx.metric_group.counter(f"rule {record}").inc()
                told.append((record, ctx.task_info.index_of_this_subtask))

        told: list[tuple[int, int]] = []
        taken, _ = run(Rules())
        letters = DeadLetters.open(tmp_path / "letters").letters
        edited = Savepoint.open(taken).edit().replay(letters).write(tmp_path / "edited")
        run(Counted(), savepoint=edited)
        assert sorted(told) == [(5, 0), (5, 1), (6, 0), (6, 1)]


class TestRequests:
    def pending(self, of: Run, done: Replays, first_batch: int) -> tuple[list[str], int]:
        (job_id,) = LocalFolder(of.letters).sizes()
        found = pending_replay(JobLetters(LocalFolder(of.letters), job_id), done, first_batch)
        return ([], 0) if found is None else ([letter.id for letter in found.letters], len(found.dropped))

    def test_each_letter_is_processed_again_once(self, own: Run) -> None:
        one, other = DeadLetters.open(own.letters).letters
        assert self.pending(own, Replays(), 2) == ([], 0)
        DeadLetters.open(own.letters).request_replay([other])
        DeadLetters.open(own.letters).request_replay([one])
        assert self.pending(own, Replays(), 2) == ([one.id, other.id], 0)
        assert self.pending(own, Replays(), 1) == ([one.id], 1), "micro-batch 1 is repeated"
        assert self.pending(own, Replays([], [one.id]), 2) == ([other.id], 0)
        (first, second) = self.requests(own)
        assert self.pending(own, Replays([first, second]), 2) == ([], 0)

    def requests(self, of: Run) -> list[str]:
        (job_id,) = LocalFolder(of.letters).sizes()
        return [request.name for request in JobLetters(LocalFolder(of.letters), job_id).requests()]

    @pytest.mark.parametrize("job_id", ["../other", "/other", "a/b", ".", "..", ""])
    def test_id_of_a_job_is_a_name(self, tmp_path: Path, job_id: str) -> None:
        with pytest.raises(CorruptDataError, match="is not the id of a job"):
            JobLetters(LocalFolder(str(tmp_path)), job_id)

    def test_letter_that_was_replaced_is_another_one(self, own: Run) -> None:
        letters = DeadLetters.open(own.letters)
        letters.request_replay(letters.letters)
        (file, _) = sorted(Path(own.letters).glob("*/letters/*.jsonl"))
        file.write_bytes(encoded([stored(file)[0] | {"record": "another"}]))
        assert self.pending(own, Replays(), 2) == ([letters.letters[1].id], 1)

    def test_done_requests_are_recorded_for_readers(self, own: Run) -> None:
        one, other = DeadLetters.open(own.letters).letters
        DeadLetters.open(own.letters).request_replay([one, other])
        (job_id,) = LocalFolder(own.letters).sizes()
        JobLetters(LocalFolder(own.letters), job_id).finish(self.requests(own), [one.id])
        letters = DeadLetters.open(own.letters)
        assert [letters.status(letter) for letter in letters.letters] == [LetterStatus.REPLAYED, LetterStatus.NEW]
        assert letters.withdraw_replays() == 0

    def test_letters_of_an_edited_savepoint_are_recorded_for_readers(self, own: Run) -> None:
        (job_id,) = LocalFolder(own.letters).sizes()
        ids = [letter.id for letter in DeadLetters.open(own.letters).letters]
        for _ in range(2):
            JobLetters(LocalFolder(own.letters), job_id).finish([], ids)
        letters = DeadLetters.open(own.letters)
        assert {letters.status(letter) for letter in letters.letters} == {LetterStatus.REPLAYED}
        assert len(list(Path(own.letters).glob("*/replays/*"))) == 1


class TestCommandLine:
    def run(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
        code = main(["dead-letters", *arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out + captured.err

    def test_show(self, first: Run, capsys: pytest.CaptureFixture[str]) -> None:
        code, text = self.run(capsys, "show", first.letters)
        lines = text.splitlines()
        assert code == 0
        assert lines[0].split() == ["id", "time", "operator", "callback", "record", "error", "status"]
        assert lines[2].split()[1:5] == ["1970-01-01", "00:00:00Z", "amounts", "process_record"]
        assert lines[-1].split() == ["amounts", "ValueError", "2", "2", "0", "0", "0"]
        code, text = self.run(capsys, "show", first.letters, "1")
        assert code == 0
        assert "operator:  amounts (subtask 0), defined at " in text
        assert "output.collect((record, int(record.amount), ctx.timestamp))" in text

    @pytest.mark.parametrize(
        ("arguments", "found"),
        [
            ([], 2), (["0"], 1), (["0.0"], 1), (["0", "1.0"], 2), (["--operator", "amounts"], 2),
            (["--operator", "others"], 0), (["--error", "ValueError"], 2), (["--error", "KeyError"], 0),
            (["--since", "1970-01-01"], 2), (["--since", "1970-01-01T00:00:01"], 0),
            (["--until", "1970-01-01T00:00:01"], 2), (["0", "--until", "1969-12-31"], 0),
        ],
    )  # fmt: skip
    def test_filters(self, first: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], found: int) -> None:
        code, text = self.run(capsys, "show", "--json", first.letters, *arguments)
        assert len(json.loads(text)["letters"]) == found
        assert code == (0 if found else 1)

    def test_replay(self, own: Run, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(capsys, "replay", own.letters, "0") == (
            0,
            "1 letter will be processed again when the job starts the next time.\n",
        )
        assert self.run(capsys, "replay", own.letters, "--operator", "amounts") == (
            0,
            "1 letter will be processed again when the job starts the next time.\n1 letter: requested.\n",
        )
        code, text = self.run(capsys, "replay", own.letters, "0")
        assert (code, text.endswith("cannot be processed again: it was requested already.\n")) == (2, True)
        assert self.run(capsys, "replay", own.letters, "--all")[0] == 1
        assert self.run(capsys, "replay", own.letters, "--withdraw") == (0, "Requests for 2 letters were withdrawn.\n")
        assert self.run(capsys, "replay", own.letters, "--withdraw")[0] == 1

    def test_mistakes(self, first: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        code, text = self.run(capsys, "show", first.letters, "7")
        assert (code, "There is no letter 7." in text) == (2, True)
        code, text = self.run(capsys, "replay", first.letters)
        assert (code, "Choose letters: ids, --operator" in text) == (2, True)
        code, text = self.run(capsys, "show", str(tmp_path))
        assert (code, "has no dead letters and is not a checkpoint" in text) == (2, True)

    def test_checkpoint_without_letters(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "offsets").mkdir()
        (tmp_path / "metadata").touch()
        code, text = self.run(capsys, "show", str(tmp_path))
        assert (code, "give that folder" in text) == (1, True)

    def test_edited_savepoint(self, first: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        new = str(tmp_path / "new")
        assert main(["savepoint", "edit", first.savepoint, new, "--replay", first.letters]) == 0
        assert capsys.readouterr().out == f"replay 2 letters\nThe new savepoint is in {new}.\n"
        assert [amount for amount, _ in run(tmp_path, Lengths(), savepoint=new).results] == ["two", "three", "5"]
