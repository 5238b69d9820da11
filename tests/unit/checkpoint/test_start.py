"""Checks of a restart from the record of a job: versions, samples of keys, and names that are kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from dsv2 import ExecutionEnvironment
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.differences import differences
from dsv2.checkpoint.dropped_state import dropped_state
from dsv2.checkpoint.fingerprint import PYTHON
from dsv2.checkpoint.key_samples import KeySample, KeySampler, add_samples, changed_keys, readable_samples
from dsv2.checkpoint.record import JobRecord
from dsv2.checkpoint.start import Action, Stored, decide
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError, PlanError
from dsv2.extension.join import join
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import OneInputStreamProcessFunction, ProcessFunction
from dsv2.graph import Plan
from dsv2.graph.state_detection import mentioned_names
from dsv2.jobs.handle import OnChange, RunOptions
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.sinks import PrintSink
from dsv2.state import StateDeclaration, StateDeclarations
from tests.durations import ms


class Tweet(NamedTuple):
    topic: str
    author: str


class Count(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self, *states: StateDeclaration) -> None:
        self.states = states
        self.seen: dict[str, int] = {}

    def uses_states(self) -> tuple[StateDeclaration, ...]:
        return self.states

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


def topic(record: Any) -> Any:
    return record.topic


def author(record: Any) -> Any:
    return record.author


def topic_or_author(record: Any) -> Any:
    return record.topic if record.topic != "b" else record.author


COUNT = Count()


@dataclass(frozen=True)
class Program:
    """Counts tweets by key. The result stays keyed."""

    key: Callable[[Any], Any] = topic
    version: int | None = None
    output_key: Callable[[Any], Any] = topic
    output_version: int | None = None
    count: ProcessFunction = COUNT

    def plan(self) -> Plan:
        env = ExecutionEnvironment.get_instance("local")
        tweets: Any = env.from_collection([Tweet("a", "b")]).with_uid("tweets")
        keyed = tweets.key_by(self.key, version=self.version)
        counts = keyed.process(self.count, self.output_key, version=self.output_version).with_uid("count")
        counts.process(Count()).with_uid("again").to_sink(PrintSink())
        return env.build_plan("job")


PROGRAM = Program()


def found(before: Program, now: Program) -> list[str]:
    found = differences(describe(before.plan()), describe(now.plan()))
    return [str(difference).partition("): ")[2] for difference in found]


class Letter(NamedTuple):
    text: str

    def own_key(self) -> str:
        return self.text


def test_selector_digest_includes_methods_of_the_record_type() -> None:
    def digest() -> str:
        env = ExecutionEnvironment.get_instance("local")
        letters = env.from_collection([Letter("a")]).key_by(lambda letter: letter.own_key())
        letters.process(COUNT).to_sink(PrintSink())
        operators = describe(env.build_plan()).operators.values()
        (key,) = (operator.inputs[0].key for operator in operators if operator.inputs)
        assert key is not None
        return key.digest

    before = digest()
    with pytest.MonkeyPatch.context() as patched:
        assert digest() == before
        patched.setattr(Letter, "own_key", lambda letter: letter.text[0])
        assert digest() != before
    assert digest() == before


# --- Versions ---------------------------------------------------------------------------------------------------------


def test_version_replaces_the_code_of_the_selector() -> None:
    before = Program(key=topic, version=2)
    assert found(before, Program(key=author, version=2)) == []
    assert found(before, Program(key=topic, version=3)) == [
        "the key selector of input 0 was version 2 and is now version 3"
    ]


def test_selector_without_version_has_version_1() -> None:
    assert found(Program(key=topic), Program(key=author, version=1)) == []
    assert found(Program(), Program(version=2)) == ["the key selector of input 0 was version 1 and is now version 2"]


def test_without_a_version_the_code_counts_again() -> None:
    before = Program(key=topic, version=3)
    assert found(before, Program(key=topic)) == []
    (difference,) = found(before, Program(key=author))
    assert difference.endswith("has changed; if all keys stay the same, give it version=3")


def test_selectors_of_outputs_have_versions() -> None:
    before = Program(output_version=1)
    assert found(before, Program(output_key=author, output_version=1)) == []
    # It is also the key of the downstream operator.
    assert found(before, Program(output_version=2)) == [
        "the key selector of output 0 was version 1 and is now version 2",
        "the key selector of input 0 was version 1 and is now version 2",
    ]


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "2"])
def test_version_must_be_positive(version: Any) -> None:
    with pytest.raises(PlanError, match="the version of a key selector must be a whole number of at least 1"):
        Program(version=version).plan()
    with pytest.raises(PlanError, match="the version of a key selector must be a whole number of at least 1"):
        Program(output_version=version).plan()


def test_version_without_a_selector_is_refused() -> None:
    env = ExecutionEnvironment.get_instance("local")
    keyed: Any = env.from_collection([Tweet("a", "b")]).key_by(topic)
    both: Any = join(lambda left, right, output, ctx: None)
    with pytest.raises(PlanError, match="version requires a key selector"):
        keyed.process(COUNT, version=2)
    with pytest.raises(PlanError, match="version requires a key selector"):
        keyed.connect_and_process(keyed, both, version=2)


# --- Samples of keys --------------------------------------------------------------------------------------------------


def codec_of(plan: Plan) -> Codec:
    return Codec(TypeRegistry.of(plan))


def samples_of(program: Program, *records: Any) -> list[KeySample]:
    """The samples in a checkpoint after micro-batches of one record each."""
    plan = program.plan()
    kept: list[KeySample] = []
    for record in records:
        sampler = KeySampler(plan, plan.operators[1].id, codec_of(plan))
        sampler.see(0, [])
        sampler.see(0, [record, Tweet("never", "seen")])
        kept = add_samples(kept, sampler.report())
    return kept


def verdict(samples: list[KeySample], program: Program) -> list[str]:
    plan = program.plan()
    found = changed_keys(plan, readable_samples(plan, samples, codec_of(plan)))
    assert not any(difference.carried for difference in found)
    return [difference.text for difference in found]


def test_selector_must_return_the_sampled_keys() -> None:
    samples = samples_of(PROGRAM, Tweet("a", "x"), Tweet("b", "y"))
    assert verdict(samples, PROGRAM) == []
    assert verdict(samples, Program(key=lambda tweet: str(tweet[0]))) == []
    (text,) = verdict(samples, Program(key=topic_or_author))
    assert text.endswith(
        "the key selector of input 0 returns another key than before: for Tweet(topic='b', author='y') it returned "
        "'b', and now it returns 'y'"
    )
    assert text.startswith("operator 'count' (defined at ")


def test_equal_keys_are_accepted() -> None:
    samples = samples_of(Program(key=lambda tweet: 1), Tweet("a", "x"))
    assert verdict(samples, Program(key=lambda tweet: 1.0)) == []


def test_selector_that_raises_is_refused() -> None:
    (text,) = verdict(samples_of(PROGRAM, Tweet("a", "x")), Program(key=lambda tweet: tweet.place))
    assert text.endswith("and now it raises AttributeError: 'Tweet' object has no attribute 'place'")


def test_samples_have_different_keys() -> None:
    samples = samples_of(PROGRAM, *(Tweet(f"topic {number % 40}", "x") for number in range(100)))
    assert len(samples) == len({sample["hash"] for sample in samples}) == 16
    assert samples[0]["hash"] == stable_hash("topic 0")


def test_large_or_unserializable_records_are_not_sampled() -> None:
    assert samples_of(PROGRAM, Tweet("a", "x" * 10_000), Tweet("a", lambda: 0), Tweet(["no key"], "x")) == []  # type: ignore[arg-type]


def test_unreadable_samples_are_ignored() -> None:
    samples = samples_of(PROGRAM, Tweet("a", "x"), Tweet("b", "x"))
    samples[0]["record"] = "AAAA"
    plan = PROGRAM.plan()
    assert [record for _, record in readable_samples(plan, samples, codec_of(plan))] == [Tweet("b", "x")]
    assert readable_samples(plan, [sample | {"key_of": "gone"} for sample in samples], codec_of(plan)) == []


# --- A start --------------------------------------------------------------------------------------------------------


def record_of(before: Program, *later: Program, **parts: Any) -> JobRecord:
    programs = [describe(program.plan()) for program in (before, *later)]
    return JobRecord(job_id="job", batch_id=3, programs=programs, **parts)


def start(program: Program, record: JobRecord, *differences: Difference, **options: Any) -> JobRecord:
    """Start ``program`` from a checkpoint, and return the record with which it continues, as it is read back."""
    found = Stored(record, "/checkpoint", differences=differences)
    decided = decide(found, program.plan(), RunOptions(**options), "job")
    decided.check()
    return msgspec.json.decode(msgspec.json.encode(decided.record), type=JobRecord)


def test_all_differences_are_listed() -> None:
    record = record_of(PROGRAM, keys=samples_of(PROGRAM, Tweet("a", "x")))
    with pytest.raises(IncompatibleCheckpointError) as refused:
        start(Program(key=author), record)
    head, digest, sample, advice = str(refused.value).splitlines()
    assert head == "This program cannot continue from the checkpoint /checkpoint:"
    assert digest.endswith(
        "has changed; if all keys stay the same, give it version=1. A savepoint does not carry this change."
    )
    assert "returns another key than before" in sample
    assert advice.startswith(
        "Undo the changes that a savepoint does not carry, or start from a new checkpoint_location"
    )


def test_savepoint_is_offered_if_it_carries_everything() -> None:
    change = Difference("layout", "the number of state partitions was 5 and is now 1", carried=True)
    with pytest.raises(IncompatibleCheckpointError) as refused:
        start(PROGRAM, record_of(PROGRAM), change, on_change=OnChange.REFUSE)
    _, difference, advice = str(refused.value).splitlines()
    assert difference == "  - the number of state partitions was 5 and is now 1. A savepoint carries this change."
    assert advice.startswith("Undo the changes, or start with on_change='migrate'")


def test_no_change_is_carried_if_the_engine_has_state() -> None:
    found = Stored(record_of(PROGRAM), "/checkpoint", has_foreign_state=True)
    assert decide(found, PROGRAM.plan(), RunOptions(), "job").action is Action.CONTINUE
    changed = decide(found, Program(version=2).plan(), RunOptions(), "job")
    assert (changed.action, [change.carried for change in changed.changes]) == (Action.REFUSE, [False])


def test_samples_count_whatever_the_version() -> None:
    record = record_of(PROGRAM, keys=samples_of(PROGRAM, Tweet("a", "x")))
    assert start(Program(key=lambda tweet: tweet[0], version=1), record).keys == record.keys
    with pytest.raises(IncompatibleCheckpointError, match="returns another key than before"):
        start(Program(key=author, version=1), record)


VALUE = StateDeclarations.value_state


def test_state_added_later_keeps_its_type() -> None:
    with_total = Program(count=Count(VALUE("total", int)))
    record = start(with_total, record_of(PROGRAM))
    record = start(PROGRAM, record, allow_dropped_state=True)
    with pytest.raises(IncompatibleCheckpointError, match=r"state 'total': its type was int and is now"):
        start(Program(count=Count(VALUE("total", str))), record)
    assert start(with_total, record).programs[::-1] == record.programs


def test_state_is_dropped_with_permission_once() -> None:
    record = start(PROGRAM, record_of(Program(count=Count(VALUE("total", int)))), allow_dropped_state=True)
    assert start(PROGRAM, record) == record


def test_values_of_unknown_classes_are_refused() -> None:
    order: Any = make_dataclass("Order", [("number", int)])
    order.__module__ = "shop"
    before, now = (Program(count=Count(VALUE("total", form))) for form in (order, object))
    for record in (record_of(before), record_of(PROGRAM, before)):
        with pytest.raises(IncompatibleCheckpointError, match=r"it may hold values of shop\.Order, a class that"):
            start(now, record)


def test_selectors_are_compared_again_under_another_python() -> None:
    old = replace(record_of(PROGRAM), programs=[replace(describe(PROGRAM.plan()), python="3.1")])
    record = start(PROGRAM, old)
    assert [program.python for program in record.programs] == ["3.1", PYTHON]
    with pytest.raises(IncompatibleCheckpointError, match="has changed"):
        start(Program(key=author), record)


def test_equal_program_is_not_noted() -> None:
    record = record_of(PROGRAM)
    assert start(Program(), record).programs == record.programs


# --- Names that are kept ----------------------------------------------------------------------------------------------


def dropped(program: Program, before: Program, fields: tuple[str, ...] = ()) -> list[str]:
    last = describe(before.plan())
    return [what for _, what in dropped_state(program.plan(), last, {"count": [*fields], "again": ["seen"]})]


class InWindows(OneInputWindowStreamProcessFunction[Any, Any]):
    def __init__(self, *states: StateDeclaration) -> None:
        self.states = states

    def use_window_states(self) -> tuple[StateDeclaration, ...]:
        return self.states

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None: ...


class MadeLater(Count):
    """Its fields do not all come from its constructor."""

    declared: int
    if TYPE_CHECKING:
        in_property: int

    @property
    def read_by_property(self) -> Any:
        return self.in_property

    def open(self, ctx: Any) -> None:
        self.made_in_open = 1

        def inner() -> None:
            self.made_inside = 1

        inner()
        setattr(self, "by_name", 1)  # noqa: B010


def test_dropped_states_are_named() -> None:
    before = Program(count=Count(VALUE("total", int), VALUE("last", str)))
    now = Program(count=Count(VALUE("sum", int), VALUE("last", str)))
    assert dropped(now, before) == ["the state 'total'"]
    assert dropped(before, now) == ["the state 'sum'"]
    assert dropped(before, before) == []


def test_dropped_states_of_windows_are_named() -> None:
    programs = [
        Program(count=windowed(WindowStrategy.tumbling(ms(10)), InWindows(VALUE(name, int))))
        for name in ("total", "sum")
    ]
    assert dropped(programs[1], programs[0]) == ["the state 'total'"]


def test_dropped_fields_are_named() -> None:
    assert dropped(PROGRAM, PROGRAM, fields=("seen", "states")) == []
    assert dropped(PROGRAM, PROGRAM, fields=("counts", "seen")) == ["the field 'counts' of its function"]
    program = Program(count=Count(VALUE("sum", int)))
    assert dropped(program, Program(count=Count(VALUE("total", int))), fields=("counts",)) == [
        "the state 'total', the field 'counts' of its function"
    ]


def test_fields_of_any_method_are_found() -> None:
    names = ("declared", "in_property", "made_in_open", "made_inside", "by_name", "seen")
    assert mentioned_names(MadeLater()) >= set(names)
    assert dropped(replaced(PROGRAM, count=MadeLater()), PROGRAM, fields=names) == []


def test_dropped_state_is_a_warning_or_an_error() -> None:
    program, before = Program(count=Count(VALUE("sum", int))), Program(count=Count(VALUE("total", int)))
    with pytest.raises(IncompatibleCheckpointError, match="holds the state 'total'"):
        start(program, record_of(before))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Stored(record_of(before), "/checkpoint")
        decide(found, program.plan(), RunOptions(allow_dropped_state=True), "").warn_of_dropped("/checkpoint")
    (warning,) = caught
    assert warning.category is DroppedStateWarning
    assert warning.filename == __file__
    assert "the checkpoint holds the state 'total', which the program no longer uses" in str(warning.message)
