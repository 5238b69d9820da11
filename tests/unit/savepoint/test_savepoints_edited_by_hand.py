"""Savepoints that somebody has changed, with fitting digests: what does not fit is named, with its file."""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsv2 import Dsv2Error
from dsv2.base.folders import LocalFolder
from dsv2.checks.json_documents import from_json, to_json
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.extension.join import join
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.savepoint.metadata import read_info
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import Stop, TestSource
from tests.support import local_environment

COUNT = StateDeclarations.value_state("n", int, default=0)


class Count(OneInputStreamProcessFunction[int, int]):
    def __init__(self) -> None:
        self.total = 0

    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.total += 1
        state = ctx.state_manager.get_state(COUNT)
        state.update(state.value() + 1)
        output.collect(state.value())


def by_three(number: int) -> int:
    return number % 3


def pair(left: int, right: int, output: Any, ctx: Any) -> None:
    output.collect((left, right))


def start(**options: Any) -> Any:
    env = local_environment()
    numbers = env.from_source(TestSource[int]([*range(9), Stop(), *range(9)])).with_uid("in")
    counts = numbers.key_by(by_three).process(Count()).with_uid("count")
    joined = counts.key_by(by_three).connect_and_process(numbers.key_by(by_three), join(pair)).with_uid("join")
    joined.to_sink(CollectSink()).with_uid("out")
    job = env.execute_async("edited", **options)
    job.await_termination()
    return job


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(start().savepoint(tmp_path_factory.mktemp("original") / "savepoint"))


def write(path: Path, entry: dict[str, Any]) -> None:
    """Write the description with the digests that the files have."""
    for name in entry["files"]:
        data = (path / name).read_bytes()
        entry["files"][name] = {"size": len(data), "sha256": sha256(data).hexdigest()}
    (path / "savepoint.json").write_bytes(to_json(entry))


def edited(original: Path, path: Path, operator: str, kind: str, change: Callable[[list[dict[str, Any]]], None]) -> str:
    """A copy with other rows."""
    shutil.copytree(original, path)
    entry = from_json((path / "savepoint.json").read_bytes())
    (name,) = (name for name in entry["files"] if re.search(rf"-{operator}-{kind}(-\w+)?/", name))
    table = pq.read_table(path / name)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path / name)
    write(path, entry)
    return str(path)


# --- The description --------------------------------------------------------------------------------------------------


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the ways to all parts of a JSON value, of each list the first two elements."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, part in inner:
        yield from places(part, (*at, name))


def test_no_part_of_the_description_has_another_type_without_notice(original: Path, tmp_path: Path) -> None:
    """A description that is accepted also starts, or is refused because the program is another one."""
    path = tmp_path / "savepoint"
    shutil.copytree(original, path)
    folder, entry = LocalFolder(str(path)), from_json((original / "savepoint.json").read_bytes())
    accepted = []
    for place in places(entry):
        if not place or place[0] == "files":
            continue
        for other in (None, 1, "x", [], [[1]], {"a": 1}):
            changed: Any = copy.deepcopy(entry)
            parent = changed
            for name in place[:-1]:
                parent = parent[name]
            parent[place[-1]] = other
            (path / "savepoint.json").write_bytes(to_json(changed))
            try:
                read_info(folder)
            except CorruptDataError as error:
                said = str(error)
            except IncompatibleCheckpointError:
                assert place == ("version",)
                continue
            else:
                accepted.append((place, changed))
                continue
            assert said.startswith(f"{path}/savepoint.json is damaged: "), said
    assert len(accepted) > 50
    for place, changed in accepted[::7]:
        (path / "savepoint.json").write_bytes(to_json(changed))
        try:
            start(savepoint=str(path), as_new_job=True)
        except (ConfigurationError, CorruptDataError, IncompatibleCheckpointError):
            continue
        except Dsv2Error as error:  # pragma: no cover - what must not happen
            pytest.fail(f"{place}: {type(error).__name__}: {error}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda of: of["operators"]["count"].update(inputs=1),
            r"Expected `array`.*programs\[0\]\.operators\[\.\.\.\]\.inputs",
        ),
        (lambda of: of["operators"]["count"].pop("output_keys"), ".*missing.*`output_keys`"),
        (
            lambda of: of["operators"]["count"]["states"]["n"].update(types=[[1]]),
            r"Expected `str`.*states\[\.\.\.\]\.types\[0\]",
        ),
        (lambda of: of["operators"]["join"].update(parallelism=0), ".*>= 1.*parallelism"),
        (lambda of: of["watermarks"].update(w={}), ".*missing.*watermarks"),
        (lambda of: of.pop("former_names"), ".*missing.*`former_names`"),
    ],
)
def test_damaged_part_of_a_program_is_named(
    original: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    path = tmp_path / "savepoint"
    shutil.copytree(original, path)
    entry = from_json((path / "savepoint.json").read_bytes())
    change(entry["programs"][-1])
    write(path, entry)
    with pytest.raises(CorruptDataError, match=rf"{path}/savepoint.json is damaged: {said}"):
        start(savepoint=str(path), as_new_job=True)


# --- Rows -------------------------------------------------------------------------------------------------------------


def set_first(**values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda rows: rows[0].update(values)


def value_of(name: str) -> Callable[[list[dict[str, Any]]], None]:
    """Give a row the value of another one."""

    def change(rows: list[dict[str, Any]]) -> None:
        one, other = (next(row for row in rows if row["state"] == state) for state in (name, "counters"))
        one["value_bytes"] = other["value_bytes"]

    return change


@pytest.mark.parametrize(
    ("operator", "kind", "change", "said"),
    [
        ("count", "part", set_first(subtask=5), r"State of count, subtasks \[0, 5\]: the rows of kind 'part'"),
        ("count", "part", set_first(state="x"), r"State of count, subtasks \[0\]: .*not complete"),
        ("count", "part", set_first(kind="edge"), r"State of count, subtask 0: a row of kind 'edge', '\w+',"),
        ("count", "edge", set_first(value_bytes=b"\x01"), "State of count, subtask 0: "),
        ("count", "edge", set_first(kind="part"), "State of count, subtask 0: a row of kind 'part'"),
        ("count", "keyed", set_first(value_bytes=None), r"Keyed state of .*'count'.*a row has no value"),
        ("join", "part", value_of("gates"), r"State of join, subtasks \[0\]: the rows of kind 'part'"),
        ("join", "part", set_first(subtask=None), r"part-00000.parquet is damaged: a row has no subtask"),
        ("join", "part", set_first(kind="x"), r"part-00000.parquet is damaged: 'x' is not a valid RowKind"),
    ],
)
def test_row_that_does_not_fit_is_named(
    original: Path, tmp_path: Path, operator: str, kind: str, change: Any, said: str
) -> None:
    path = edited(original, tmp_path / "savepoint", operator, kind, change)
    with pytest.raises(CorruptDataError, match=rf"^The savepoint {path}: .*{said}"):
        start(savepoint=path, as_new_job=True)
