"""The declared record types of sources."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pytest

from dsv2.arrow.table_source import TableSource
from dsv2.graph.record_types import UNDECLARED, declared_type
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource, DataGeneratorSource, IndexedSource
from tests.support import local_environment

T = TypeVar("T")


class Click(NamedTuple):
    user: str


class Indexed(IndexedSource[T], Generic[T]):
    def __init__(self) -> None:
        super().__init__(count=0, records_per_batch=None, records_per_second=None)

    def read(self, indices: range) -> list[T]:
        return []


class Clicks(Indexed[Click]): ...


class MoreClicks(Clicks): ...


class Lists(Indexed[list[Click]]): ...


class WithoutArgument(Indexed): ...  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("source", "declared"),
    [
        (Clicks(), Click),
        (MoreClicks(), Click),
        (Lists(), list[Click]),
        (Indexed[Click](), UNDECLARED),
        (WithoutArgument(), UNDECLARED),
        (DataGeneratorSource(str, count=1), UNDECLARED),
        (CollectionSource([Click("ada")]), Click),
        (TableSource(pa.table({"user": ["ada"]}), Click), Click),
        (TableSource(pa.table({"user": ["ada"]}), dict), dict),
    ],
)
def test_class_statement_or_argument_declares_records(source: Any, declared: Any) -> None:
    env = local_environment()
    env.from_source(source).to_sink(CollectSink())
    plan = env.build_plan()
    assert declared_type(plan, plan.operators[0], 0) == declared
