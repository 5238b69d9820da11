"""Options for state and tasks, as far as they are checked without Spark."""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from typing import Any

import pytest

from dsv2.errors import ConfigurationError
from runtime_spark import SparkRuntime, StateLayout
from runtime_spark.task import map_stage


def test_map_layout_requires_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"google", "google.protobuf"}
    monkeypatch.setattr(map_stage, "find_spec", lambda name: ModuleSpec(name, None) if name in present else None)
    nobody: Any = None
    SparkRuntime(nobody, state_layout=StateLayout.MAP)
    for missing in ("google.protobuf", "google"):
        present.remove(missing)
        with pytest.raises(ConfigurationError, match=r"requires the package protobuf.*pip install 'dsv2\[map-state\]'"):
            SparkRuntime(nobody, state_layout=StateLayout.MAP)
        SparkRuntime(nobody)


@pytest.mark.parametrize("partitions", [0, -3])
def test_stage_has_at_least_one_task(partitions: int) -> None:
    nobody: Any = None
    with pytest.raises(ConfigurationError, match=f"partitions must be a whole number of at least 1, not {partitions}"):
        SparkRuntime(nobody, partitions=partitions)
    SparkRuntime(nobody, partitions=1)
