"""Errors of a file sink on Spark name the sink and what it was doing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from dsv2 import Dsv2Error, ErrorPolicy, ExecutionEnvironment, JobError
from dsv2.base.clock import SystemClock
from dsv2.errors import CorruptDataError, SchemaError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.sink_checks import SinkCheck
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.sinks import FileSink
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.worker import pack_job
from runtime_spark.sink.file_sinks import SparkFileSinkWriter
from runtime_spark.sink.sink_types import with_schema_checks


class Word(NamedTuple):
    word: str


def plan_with(policy: ErrorPolicy | None = None) -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    sink = env.from_collection([Word("a")]).to_sink(FileSink("out", schema=Word)).with_uid("out")
    if policy is not None:
        sink.with_error_policy(policy)
    return env.build_plan()


def sink_of(plan: Plan) -> Operator:
    return next(operator for operator in plan.operators if operator.kind is OperatorKind.SINK)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (CorruptDataError("its log is damaged"), CorruptDataError, "its log is damaged"),
        (PermissionError("not yours"), JobError, "PermissionError: not yours"),
    ],
)
def test_error_names_the_sink_and_keeps_its_type(error: Exception, kind: type[Dsv2Error], said: str) -> None:
    plan = plan_with()
    packed = pack_job(plan, Layout.of(plan), TypeRegistry.of(plan))
    session: Any = None
    writer = SparkFileSinkWriter(session, sink_of(plan), Layout.of(plan), packed, SystemClock(), "run")
    writer._folder = Mock(**{"publish.side_effect": error, "roll.side_effect": error})
    writer._merger = Mock()
    for run, what in ((writer.publish, "cannot publish a micro-batch"), (writer.roll, "cannot merge small files")):
        with pytest.raises(kind, match=rf"uid 'out'.* {what}: {said}"):
            run()


def test_records_are_checked_against_the_schema_before_a_file_sink() -> None:
    session: Any = SimpleNamespace(conf={"spark.sql.session.timeZone": "UTC"})
    checked = with_schema_checks(session, plan_with(ErrorPolicy().skip(SchemaError)))
    (check,) = (operator.body for operator in checked.operators if isinstance(operator.body, SinkCheck))
    check.sink.check_record(Word("a"))
    with pytest.raises(SchemaError, match="does not fit the schema"):
        check.sink.check_record((1, 2))
