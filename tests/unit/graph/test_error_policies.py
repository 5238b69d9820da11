"""Error policies: rules, limits, retries, dead letters, and operators that cannot have one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from dsv2 import DeadLetter, ErrorPolicy, ExecutionEnvironment, OutputTag, Resource
from dsv2.arrow import ArrowProcessFunction
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.differences import differences
from dsv2.errors import ConfigurationError, ContractError, InvalidKeyError, PlanError, ResourceError, UserFunctionError
from dsv2.extension.join import JoinMode, join
from dsv2.functions import MapFunction, OneInputStreamProcessFunction
from dsv2.runtime.state.undo import UndoLog
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclarations
from dsv2.testing import ManualClock, OneInputHarness

TOTAL = StateDeclarations.value_state("total", int, default=0)


class TransientError(ConnectionError):
    pass


class Raising(OneInputStreamProcessFunction[Any, Any]):
    """Raises records that are exceptions, and emits the others with the total of their key."""

    def uses_states(self) -> Any:
        return [TOTAL]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        total.update(total.value() + 1)
        output.collect(total.value())
        if isinstance(record, Exception):
            raise record


def one_key(record: Any) -> int:
    if isinstance(record, KeyError):
        raise record
    return 0


def harness_of(policy: ErrorPolicy, **options: Any) -> OneInputHarness[Any, Any]:
    return OneInputHarness(Raising(), key=one_key, error_policy=policy, checks=False, **options)


def counters(harness: OneInputHarness[Any, Any]) -> dict[str, int]:
    return dict(harness.progress.counters)


class TestRules:
    @pytest.mark.parametrize(
        "policy",
        [
            ErrorPolicy().skip(ValueError),
            ErrorPolicy().skip(ValueError, TypeError),
            ErrorPolicy().skip(),
            ErrorPolicy().fail(TypeError).skip(Exception),
            ErrorPolicy().skip(ValueError).fail(Exception),
        ],
    )
    def test_error_is_skipped(self, policy: ErrorPolicy) -> None:
        harness = harness_of(policy)
        harness.input.push(1, ValueError(), UnicodeError(), 1)
        assert harness.output.records == [1, 2]
        assert counters(harness) == {"errors_skipped": 2}

    @pytest.mark.parametrize(
        ("policy", "kind"),
        [
            (ErrorPolicy().skip(ValueError), TypeError),
            (ErrorPolicy().fail(ValueError).skip(), ValueError),
            (ErrorPolicy().skip(), ContractError),
            (ErrorPolicy().skip(ValueError).dead_letter(KeyError), ContractError),
        ],
    )
    def test_error_fails_the_job(self, policy: ErrorPolicy, kind: type[Exception]) -> None:
        harness, error = harness_of(policy), kind("a mistake")
        with pytest.raises(UserFunctionError) as failed:
            harness.input.push(1, error)
        assert failed.value.cause is error

    def test_exceptions_that_are_no_errors_fail_the_job(self) -> None:
        class Exits(OneInputStreamProcessFunction[Any, Any]):
            def process_record(self, record: Any, output: Any, ctx: Any) -> None:
                raise SystemExit

        with pytest.raises(UserFunctionError, match="SystemExit"):
            OneInputHarness(Exits(), error_policy=ErrorPolicy().skip()).input.push(1)

    def test_mistakes_of_the_program_fail_the_job(self) -> None:
        class Returns(OneInputStreamProcessFunction[Any, Any]):
            def process_record(self, record: Any, output: Any, ctx: Any) -> Any:
                return record

        with pytest.raises(UserFunctionError, match="returned 1, which is discarded"):
            OneInputHarness(Returns(), error_policy=ErrorPolicy().skip()).input.push(1)

    def test_records_without_a_key_are_covered_by_name(self) -> None:
        harness = OneInputHarness(
            Raising(), key=lambda record: record, error_policy=ErrorPolicy().skip(InvalidKeyError, TypeError)
        )
        harness.input.push(1, None, [], 1)
        assert harness.output.records == [1, 2]
        assert harness.keys == [1]

    @pytest.mark.parametrize(
        ("build", "message"),
        [
            (lambda: ErrorPolicy().skip("ValueError"), "skip takes subclasses of Exception, not 'ValueError'"),  # type: ignore[arg-type]
            (lambda: ErrorPolicy().fail(KeyboardInterrupt), "fail takes subclasses of Exception, not <class"),  # type: ignore[arg-type]
            (lambda: ErrorPolicy().skip(ResourceError), "skip: ResourceError always fails the job"),
            (lambda: ErrorPolicy().retry(ValueError, ResourceError, times=1), "retry: ResourceError always fails"),
            (lambda: ErrorPolicy().retry(times=0), "times must be a whole number from 1 to 30, not 0"),
            (lambda: ErrorPolicy().retry(times=2, backoff=timedelta(seconds=-1)), "backoff must be 0 or more"),
            (lambda: ErrorPolicy().retry(times=2, jitter=2), "jitter must be a number from 0 to 1, not 2"),
            (lambda: ErrorPolicy().retry(times=2, max_backoff=timedelta(-1)), "max_backoff must be 0 or more"),
            (lambda: ErrorPolicy().limit(total=-1), "total must be a whole number of at least 0, not -1"),
            (lambda: ErrorPolicy().limit(per_micro_batch=True), "per_micro_batch must be a whole number"),
        ],
    )
    def test_wrong_arguments_are_refused(self, build: Callable[[], object], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            build()


def no_model() -> Any:
    raise ValueError("no such file")


class TestResources:
    """Without its model every record fails, so that a policy would drop them all."""

    @pytest.mark.parametrize(
        "policy",
        [
            ErrorPolicy().skip(),
            ErrorPolicy().skip(ValueError, Exception),
            ErrorPolicy().dead_letter(),
            ErrorPolicy().retry(Exception, times=2, backoff=timedelta(seconds=1)).skip(),
        ],
    )
    def test_resource_that_cannot_be_opened_fails_the_job(self, policy: ErrorPolicy) -> None:
        model, clock = Resource(no_model), ManualClock()
        function = MapFunction[Any, Any](lambda record: model.get())
        harness = OneInputHarness(function, error_policy=policy, clock=clock)
        with pytest.raises(UserFunctionError, match=r"ResourceError: .* no such file") as caught:
            harness.input.push(1)
        assert isinstance(caught.value.cause, ResourceError)
        assert clock.now_ms() == 0  # nothing was repeated

    def test_resource_of_a_key_selector_fails_the_job(self) -> None:
        model = Resource(no_model)
        env = ExecutionEnvironment.get_instance(runtime="local")
        result = env.from_collection([1]).key_by(lambda record: model.get()).process(Raising())
        result.with_error_policy(ErrorPolicy().skip()).to_sink(CollectSink())
        with pytest.raises(UserFunctionError, match=r"ResourceError: .* no such file"):
            env.execute()


class TestLimits:
    def test_total_holds_over_restarts(self) -> None:
        harness = harness_of(ErrorPolicy().skip().limit(total=2))
        harness.input.push(ValueError(), ValueError())
        harness.restart()
        with pytest.raises(UserFunctionError, match=r"allows 2 failures in total, and this is number 3"):
            harness.input.push(ValueError())

    def test_micro_batch_counts_anew(self) -> None:
        harness = harness_of(ErrorPolicy().skip().limit(per_micro_batch=1))
        for _ in range(3):
            harness.input.push(ValueError())
            harness.snapshot()  # ends the micro-batch
        harness.input.push(ValueError())
        with pytest.raises(UserFunctionError, match=r"allows 1 failures per micro-batch in a subtask, .* number 2"):
            harness.input.push(ValueError())


class TestRetries:
    def run(self, policy: ErrorPolicy, failures: int) -> tuple[OneInputHarness[Any, Any], ManualClock]:
        """Push a record that fails a number of times."""
        left = [TransientError()] * failures

        class Unreliable(Raising):
            def process_record(self, record: Any, output: Any, ctx: Any) -> None:
                super().process_record(left.pop() if left else record, output, ctx)

        clock = ManualClock()
        harness = OneInputHarness(Unreliable(), key=one_key, error_policy=policy, clock=clock, checks=False)
        harness.input.push(1, 2)
        return harness, clock

    def test_record_succeeds_later(self) -> None:
        harness, clock = self.run(ErrorPolicy().retry(ConnectionError, times=3, backoff=timedelta(seconds=1)), 3)
        assert harness.output.records == [1, 2]
        assert clock.now_ms() == 1000 + 2000 + 4000
        assert counters(harness) == {"errors_retried": 3}

    def test_waits_have_a_limit_and_a_random_part(self) -> None:
        second, jitter = timedelta(seconds=1), 0.5
        policy = ErrorPolicy().retry(times=3, backoff=second, max_backoff=timedelta(milliseconds=1500))
        _, clock = self.run(policy, 3)
        assert clock.now_ms() == 1000 + 1500 + 1500
        policy = ErrorPolicy().retry(times=3, backoff=second, jitter=jitter)
        waits = [self.run(policy, 3)[1].now_ms() for _ in range(2)]
        assert waits[0] == waits[1]  # a repeated task waits as long
        assert 7000 * (1 - jitter) < waits[0] < 7000

    def test_other_rules_apply_in_the_end(self) -> None:
        harness, _ = self.run(ErrorPolicy().retry(times=2).skip(), 3)
        assert harness.output.records == [1]
        assert counters(harness) == {"errors_retried": 2, "errors_skipped": 1}
        with pytest.raises(UserFunctionError, match="TransientError"):
            self.run(ErrorPolicy().retry(times=2), 3)

    def test_other_errors_are_not_retried(self) -> None:
        with pytest.raises(UserFunctionError, match="TransientError"):
            self.run(ErrorPolicy().retry(ValueError, times=2), 1)


class Order(NamedTuple):
    number: int


class TestDeadLetters:
    def test_letter_describes_the_failure(self) -> None:
        class Refuses(OneInputStreamProcessFunction[Order, Order]):
            def process_record(self, record: Order, output: Any, ctx: Any) -> None:
                raise ValueError("refused")

        harness = OneInputHarness(
            Refuses(), key=lambda order: order.number, error_policy=ErrorPolicy().dead_letter(), clock=ManualClock(7)
        )
        harness.input.push(Order(3), timestamp=5)
        [letter] = harness.dead_letters.records
        assert isinstance(letter, DeadLetter)
        assert (letter.callback, letter.subtask, letter.key, letter.record) == ("process_record", 0, 3, Order(3))
        assert (letter.error_type, letter.error_message, letter.time) == ("ValueError", "refused", 7)
        assert letter.operator.startswith("Refuses-")
        assert 'raise ValueError("refused")' in letter.traceback
        assert harness.output.ended is False

    def test_failed_selector_has_no_key(self) -> None:
        harness = OneInputHarness(
            Raising(), key=one_key, error_policy=ErrorPolicy().dead_letter(KeyError), checks=False
        )
        error = KeyError("no such field")
        harness.input.push(error)
        [letter] = harness.dead_letters.records
        assert (letter.callback, letter.key, letter.record) == ("key selector", None, error)

    @pytest.mark.parametrize(
        ("policy", "message"),
        [
            (ErrorPolicy().skip(), "its error policy emits no dead letters"),
            (None, "its error policy emits no dead letters"),
        ],
    )
    def test_letters_that_are_never_emitted_cannot_be_read(self, policy: Any, message: str) -> None:
        env = ExecutionEnvironment.get_instance(runtime="local")
        result = env.from_collection([1]).process(Raising())
        result.to_sink(CollectSink())
        if policy is not None:
            result.with_error_policy(policy)
        result.dead_letters(int).to_sink(CollectSink())
        with pytest.raises(PlanError, match=f"Process at .*test_error_policies.py:.*: {message}"):
            env.build_plan()


class TestOperators:
    def test_default_of_the_environment_applies(self) -> None:
        env, sink = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Any]()
        env.set_error_policy(ErrorPolicy().skip(ZeroDivisionError))
        env.from_collection([1, 0, 2]).map(lambda number: 6 // number).to_sink(sink)
        env.execute()
        assert sink.results == [6, 3]

    def test_own_policy_replaces_the_default(self) -> None:
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_error_policy(ErrorPolicy().skip(ZeroDivisionError))
        env.from_collection([1, 0, 2]).map(lambda number: 6 // number).with_error_policy(ErrorPolicy()).to_sink(
            CollectSink()
        )
        with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
            env.execute()

    def test_error_of_a_chained_function_is_its_own(self) -> None:
        """The policy of a function does not cover the functions that it is chained to."""
        env = ExecutionEnvironment.get_instance(runtime="local")
        first = env.from_collection([1, 0]).map(lambda number: number).with_error_policy(ErrorPolicy().skip())
        first.map(lambda number: 6 // number).with_name("Divide").to_sink(CollectSink())
        with pytest.raises(UserFunctionError, match="operator: Divide"):
            env.execute()

    @pytest.mark.parametrize("policy", ["skip", ErrorPolicy.skip, None])
    def test_other_values_are_refused(self, policy: Any) -> None:
        env = ExecutionEnvironment.get_instance(runtime="local")
        with pytest.raises(ConfigurationError, match=r"test_error_policies.py:\d+: an error policy is an ErrorPolicy"):
            env.from_collection([1]).map(str).with_error_policy(policy)
        with pytest.raises(ConfigurationError, match=r"set_error_policy at .*: an error policy is an ErrorPolicy"):
            env.set_error_policy(policy)

    @pytest.mark.parametrize("kind", ["source", "sink", "tables", "temporal join", "union", "sample", "limit"])
    def test_operators_that_cannot_have_one_are_refused(self, kind: str) -> None:
        class Tables(ArrowProcessFunction[Order, Order]):
            def process_batch(self, batch: Any, output: Any, ctx: Any) -> None: ...

        env = ExecutionEnvironment.get_instance(runtime="local")
        env.set_error_policy(ErrorPolicy().skip())  # does not apply
        source = env.from_collection([Order(1)])
        keyed: Any = source.key_by(one_key)
        made: dict[str, Callable[[], Any]] = {
            "source": lambda: source,
            "sink": lambda: source.to_sink(CollectSink()),
            "tables": lambda: source.process(Tables()),
            "union": lambda: source.union(source),
            "sample": lambda: source.sample(0.5),
            "limit": lambda: source.limit(1),
            "temporal join": lambda: keyed.connect_and_process(
                keyed, join(lambda left, right, output, ctx: None, JoinMode.temporal())
            ),
        }
        source.to_sink(CollectSink())
        operator = made[kind]()
        env.build_plan()
        operator.with_error_policy(ErrorPolicy().skip())
        with pytest.raises(PlanError, match="cannot have an error policy"):
            env.build_plan()

    def test_operators_without_callbacks_have_no_side_outputs(self) -> None:
        source = ExecutionEnvironment.get_instance(runtime="local").from_collection([1])
        tag = OutputTag("notes", str)
        for result in (source.union(source), source.sample(0.5), source.limit(1)):
            with pytest.raises(PlanError, match=r"of (Union|Sample|Limit) at .* does not declare the output"):
                result.side_output(tag)

    def test_deduplicate_skips_records_without_a_key(self) -> None:
        """The default policy does not apply to a union."""
        env, sink, letters = ExecutionEnvironment.get_instance(runtime="local"), CollectSink[Any](), CollectSink[Any]()
        env.set_error_policy(ErrorPolicy().dead_letter(ZeroDivisionError))
        source = env.from_collection([1, 0, 1])
        result = source.union(source).deduplicate(lambda record: 1 // record, None)
        result.to_sink(sink)
        result.dead_letters(object).union(result.dead_letters(object)).limit(3).to_sink(letters)
        env.execute()
        assert sink.results == [1]
        assert [letter.error_type for letter in letters.results] == ["ZeroDivisionError"] * 3

    def test_function_with_a_policy_is_not_chained_to_a_source(self) -> None:
        """Because tasks that read sources keep no state, such as the number of failures."""
        env = ExecutionEnvironment.get_instance(runtime="local")
        env.from_source(numbers()).process(MapFunction(str)).with_error_policy(ErrorPolicy().skip()).to_sink(
            CollectSink()
        )
        plan = env.build_plan()
        assert plan.chained_to_sources == ()

    def test_policy_of_a_function_at_a_source_is_a_difference(self) -> None:
        def described(policy: ErrorPolicy) -> Any:
            env = ExecutionEnvironment.get_instance(runtime="local")
            result = env.from_source(numbers()).with_uid("in").process(MapFunction(str)).with_uid("map")
            result.with_error_policy(policy).to_sink(CollectSink())
            return describe(env.build_plan())

        before, now = described(ErrorPolicy()), described(ErrorPolicy().skip())
        [difference] = differences(before, now)
        assert "it ran in the tasks that read its source and now runs in subtasks of its own" in str(difference)
        assert difference.carried
        assert differences(now, described(ErrorPolicy().skip(ValueError).limit(total=3))) == []


def numbers() -> Any:
    return DataGeneratorSource(lambda index: index, count=3)


class TestUndo:
    @pytest.mark.parametrize("value", [[1, [2]], {"a": {"b": [1]}}, (1, [2]), 5, "text", [Order(1)]])
    def test_value_is_restored(self, value: Any) -> None:
        log = UndoLog()
        values = log.new_dict()
        values["key"] = value
        before = repr(value)
        log.begin()
        held = values["key"]
        if isinstance(held, list):
            held.append(7)
        if isinstance(held, dict):
            held["a"]["b"].append(7)
        if isinstance(held, tuple):
            held[1].append(7)
        values["key"] = "another"
        values["new"] = 1
        log.undo()
        assert repr(values) == f"{{'key': {before}}}"
        if isinstance(value, list | dict):
            assert values["key"] is value

    def test_loaded_values_stay(self) -> None:
        log = UndoLog()
        values = log.new_dict()
        log.begin()
        assert values.get("key") is None
        values.update({"key": [1]})  # as when a page is read
        values["key"].append(2)
        log.undo()
        assert values == {"key": [1]}

    def test_committed_values_stay(self) -> None:
        log = UndoLog()
        values = log.new_dict()
        log.begin()
        values["key"] = 1
        log.commit()
        log.begin()
        log.undo()
        assert values == {"key": 1}
