"""Mistakes whose errors name the cause and what to write instead."""

from __future__ import annotations

import asyncio
import copy
import pickle
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dsv2 import CollectSink, Dsv2Error, ErrorPolicy, ExecutionEnvironment, Resource, new_builder
from dsv2.arrow import map_tables
from dsv2.errors import (
    ConfigurationError,
    ContractError,
    Dsv2Warning,
    PlanError,
    UserFunctionError,
    WatermarkDeclarationError,
)
from dsv2.extension.window import WindowStrategy
from dsv2.functions import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction, TwoOutputStreamProcessFunction
from dsv2.model import AsyncBatchSettings, AsyncSettings
from dsv2.sources import DataGeneratorSource


class Sale(NamedTuple):
    product: str
    amount: int


class Split(TwoOutputStreamProcessFunction[Any, Any, Any]):
    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None: ...


def sales() -> Any:
    return ExecutionEnvironment.get_instance(runtime="local").from_collection([Sale("tea", 3)])


def run(build: Callable[[Any], Any]) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    build(env.from_collection([Sale("tea", 3)])).to_sink(CollectSink())
    env.execute()


@pytest.mark.parametrize(
    ("stream", "method", "advice"),
    [
        (lambda: sales().key_by(str), "union", "has no union. .*before key_by"),
        (lambda: sales().key_by(str), "flatMap", "Call flat_map"),
        (lambda: sales().global_(), "sample", "^GlobalStream has no sample. .*before key_by, global_"),
        (lambda: sales().broadcast(), "window", "has no window. Call it before broadcast"),
        (lambda: sales().broadcast(), "map", "has no map. Call it before broadcast"),
        (lambda: sales().broadcast(), "to_sink", "Call it before broadcast"),
        (lambda: sales().broadcast(), "process", "side input of connect_and_process"),
        (sales, "aggregate", "call key_by before it"),
        (sales, "keyBy", "Call key_by"), (sales, "print", "PrintSink"), (sales, "sink_to", "to_sink"),
        (sales, "set_parallelism", "with_parallelism"),
        (lambda: sales().process(Split()), "map", "TwoStreams has no map. It has two outputs: call it on first"),
        (lambda: sales().key_by(str).process(Split()), "to_sink", "on first or second"),
        (lambda: sales().global_().process(Split()), "process", "on first or second"),
        (lambda: sales().key_by(str).window(WindowStrategy.count(1)), "sum",
         "KeyedWindowedStream has no sum. Call aggre"),
    ],
)  # fmt: skip
def test_methods_of_other_streams(stream: Callable[[], Any], method: str, advice: str) -> None:
    with pytest.raises(PlanError, match=advice):
        getattr(stream(), method)
    assert not hasattr(stream(), method)


def test_other_names_are_usual_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="object has no attribute 'nonsense'") as caught:
        _ = sales().nonsense
    assert not isinstance(caught.value, Dsv2Error)
    assert not hasattr(sales(), "_repr_svg_")
    builder = new_builder("x").type_bool()
    assert copy.copy(builder).build() == builder.build()
    with pytest.raises(AttributeError, match="combine_function_nonsense"):
        _ = builder.combine_function_nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("builder", "method", "advice"),
    [
        (new_builder("x").type_bool(), "barrier", "type_long"),
        (new_builder("x").type_set(int), "combine_function_min", "type_vector"),
        (new_builder("x").type_str(), "combine_function_sum", "type_float"),
        (new_builder("x").type_long(), "combine_function_union", "type_set"),
    ],
)
def test_methods_of_watermarks_of_other_types(builder: Any, method: str, advice: str) -> None:
    with pytest.raises(PlanError, match=f"has no {method}.*{advice}"):
        getattr(builder, method)


class Settings(AsyncOneInputStreamProcessFunction[Sale, Sale]):
    async_settings: Any = {"capacity": 10}  # noqa: RUF012

    async def process_record(self, record: Sale, output: Any, ctx: Any) -> None: ...


class BatchSettings(AsyncBatchProcessFunction[Sale, Sale]):
    async_settings = AsyncSettings()

    async def process_records(self, records: Any, output: Any, ctx: Any) -> None: ...


class Forgets(AsyncOneInputStreamProcessFunction[Sale, Any]):
    async def process_record(self, record: Sale, output: Any, ctx: Any) -> None:
        output.collect(asyncio.sleep(0))


def test_settings_of_async_functions_are_checked() -> None:
    with pytest.raises(PlanError, match=r"Settings.async_settings must be AsyncSettings\(...\), not \{'capacity'"):
        run(lambda s: s.process(Settings()))
    with pytest.raises(PlanError, match=r"async_settings must be AsyncBatchSettings\(...\)"):
        run(lambda s: s.process(BatchSettings()))
    assert isinstance(AsyncBatchSettings(), AsyncSettings)


def test_forgotten_await() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # Python's own, when the coroutine is collected
        with pytest.raises(Dsv2Error, match=r"^A result of an async function was not awaited \(coroutine"):
            run(lambda s: s.process(Forgets()))


@pytest.mark.parametrize("result", [lambda table: None, lambda table: table.to_pandas(), lambda table: [1]])
def test_map_tables_that_returns_no_table(result: Any) -> None:
    with pytest.raises(UserFunctionError, match=r"The function of map_tables returned .*not an Arrow table") as caught:
        run(lambda s: s.process(map_tables(result, Sale, Sale)))
    assert isinstance(caught.value.cause, ContractError)


class TestErrorPolicy:
    @pytest.mark.parametrize(
        "call",
        [
            lambda: ErrorPolicy.skip(ValueError),  # type: ignore[arg-type]
            lambda: ErrorPolicy.fail(ValueError),  # type: ignore[arg-type]
            lambda: ErrorPolicy.dead_letter(ValueError),  # type: ignore[arg-type]
            lambda: ErrorPolicy.retry(ValueError, times=3),  # type: ignore[arg-type]
        ],
    )
    def test_call_of_the_class(self, call: Callable[[], object]) -> None:
        with pytest.raises(ConfigurationError, match=r"Write ErrorPolicy\(\)\."):
            call()

    @pytest.mark.parametrize(
        "build",
        [
            lambda: ErrorPolicy().skip().dead_letter(ValueError),
            lambda: ErrorPolicy().skip().dead_letter(),
            lambda: ErrorPolicy().skip(LookupError).fail(KeyError),
            lambda: ErrorPolicy().skip(ValueError).dead_letter(KeyError, ValueError),
            lambda: ErrorPolicy().skip(Exception).fail(),
            lambda: ErrorPolicy().retry(OSError, times=1).retry(ConnectionError, times=9),
        ],
    )
    def test_rule_that_never_applies(self, build: Callable[[], object]) -> None:
        with pytest.raises(ConfigurationError, match=r"would never apply to .* is before it. Put rules for special"):
            build()

    def test_rules_that_apply(self) -> None:
        ErrorPolicy().fail(KeyError).skip(LookupError).dead_letter().skip(ContractError)
        ErrorPolicy().retry(ConnectionError, times=9).retry(OSError, times=1).skip(ConnectionError)

    def test_limit_of_nothing(self) -> None:
        for policy in (ErrorPolicy().limit(total=3), ErrorPolicy().fail(ValueError).limit(per_micro_batch=3)):
            with pytest.raises(ConfigurationError, match=r"limit counts skipped records and dead letters. Add skip"):
                sales().map(str).with_error_policy(policy)
        sales().map(str).with_error_policy(ErrorPolicy().limit(total=3).skip())


def test_one_sample_proves_nothing() -> None:
    for samples in ([1], [2, 2]):
        with pytest.raises(WatermarkDeclarationError, match="at least two different samples"):
            new_builder("x").type_long().combine(lambda a, b: a, samples=samples)
    new_builder("x").type_long().combine(max, samples=[1, 2])


@pytest.mark.parametrize("position", [("0", 1), (0, "1"), ("0", "1")])
@pytest.mark.parametrize(
    "source", [lambda env: env.from_collection([1]), lambda env: env.from_source(DataGeneratorSource(int, count=1))]
)
def test_positions_to_skip_are_numbers(position: Any, source: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    source(env).with_uid("numbers").to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match=r"has a text where .* has a number"):
        env.execute(skip_records={"numbers": [position]})


def test_errors_of_missing_methods_can_be_pickled() -> None:
    with pytest.raises(PlanError) as caught:
        _ = sales().aggregate
    copied = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert str(copied) == str(caught.value)


@pytest.mark.parametrize(
    ("items", "advice"),
    [
        (pd.DataFrame({"amount": [1]}), r"DataFrame\. Call from_dataframe\(dataframe, record_type\)"),
        (pa.table({"amount": [1]}), r"Table\. Call from_dataframe"),
        (pd.Series([1]), r"items\.tolist\(\)"),
        (pa.array([1]), r"items\.tolist\(\)"),
        ("text", r"single characters\. Pass \['text'\]"),
        (b"bytes", "single characters"),
        ({"a": 1}, r"list\(items\.items\(\)\)"),
        ({1, 2}, r"Its order differs between processes\. Pass sorted\(items\)"),
        (frozenset((1, 2)), "Its order differs"),
        (Sale("tea", 3), "It is a single record"),
        (3, "3"),
        (sales, "<function"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_collections_that_are_no_sequences_of_records(items: Any, advice: str) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    with pytest.raises(ConfigurationError, match=f"must be a sequence of records, not .*{advice}"):
        env.from_collection(items)


@pytest.mark.parametrize("items", [[1], (1,), range(1), iter([1]), {1: 2}.keys(), np.array([1]), deque([1])], ids=repr)
def test_collections_of_records(items: Any) -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    assert len(env.from_collection(items).take(5)) == 1


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda record, output, ctx: ctx.get_state("x"), r"Write ctx\.state_manager\.get_state\(declaration\)"),
        (lambda record, output, ctx: ctx.current_key, r"Write ctx\.state_manager\.current_key"),
        (lambda record, output, ctx: ctx.emit_watermark(1), r"Write ctx\.non_partitioned_context\.watermark_manager"),
        (lambda record, output, ctx: output.emit(record), r"Write output\.collect\(record\)"),
        (lambda record, output, ctx: ctx.nonsense, "'nonsense'"),
    ],
)
@pytest.mark.parametrize("policy", [None, ErrorPolicy().skip()])
def test_attributes_that_contexts_do_not_have_fail_the_job(function: Any, advice: str, policy: Any) -> None:
    def build(stream: Any) -> Any:
        result = stream.key_by(str).process(function)
        return result if policy is None else result.with_error_policy(policy)

    with pytest.raises(UserFunctionError, match=f"^ContractError: .* has no attribute .*{advice}") as caught:
        run(build)
    assert "test_clear_errors.py" in caught.value.traceback_text
    assert "skip(" not in str(caught.value)


def test_attributes_that_records_do_not_have_are_errors_of_records() -> None:
    with pytest.raises(UserFunctionError, match=r"^AttributeError: 'Sale' object has no attribute 'price'") as caught:
        run(lambda stream: stream.map(lambda sale: sale.price))
    assert "skip(AttributeError)" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint_location": 3}, "checkpoint_location is the path of a folder, not 3"),
        ({"checkpoint_location": "{file}"}, "file is no folder, because .*file is a file"),
        ({"checkpoint_location": "{file}/x/y"}, "file/x/y is no folder, because .*file is a file"),
        ({"savepoint": True}, "savepoint is the path of a folder, not True"),
        ({"dead_letters": "{file}"}, "is a file"),
        ({"continued_sources": "orders"}, "continued_sources is a list of uids, not 'orders'"),
        ({"job_name": 3}, "job_name is a text, not int"),
    ],
)
def test_arguments_of_execute(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given: dict[str, Any] = {name: value.format(file=tmp_path / "file") if isinstance(value, str) else value
             for name, value in options.items()}  # fmt: skip
    env = ExecutionEnvironment.get_instance(runtime="local")
    letters = ErrorPolicy().dead_letter()
    env.from_collection([1]).map(str).with_error_policy(letters).to_sink(CollectSink())
    with pytest.raises(ConfigurationError, match=message):
        env.execute(**given)
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.parametrize("method", ["from_list", "from_elements", "fromCollection", "add_source", "read_text_file"])
def test_methods_of_other_environments(method: str) -> None:
    with pytest.raises(PlanError, match=f"ExecutionEnvironment has no {method}. Call from_"):
        getattr(ExecutionEnvironment.get_instance(runtime="local"), method)


def test_resource_for_each_record_is_a_warning() -> None:
    def opens(record: int) -> int:
        def model() -> int:
            return record

        return Resource(model).get()

    once = [Resource(lambda: 1) for _ in range(1)]
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.from_collection(range(100)).map(lambda n: opens(n) + once[0].get()).to_sink(CollectSink())
    with pytest.warns(Dsv2Warning, match=r"3\d resources with the same function are open: .*Create the Resource once"):
        env.execute()


def test_different_resources_are_no_warning() -> None:
    for number in range(60):
        scope: dict[str, Any] = {}
        exec(f"def open_{number}(): return {number}", scope)
        assert Resource(scope[f"open_{number}"]).get() == number
