"""Ways through savepoints and dead letters, on the local runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.dead_letters import DeadLetters
from dsv2.savepoint import Savepoint, bootstrap
from dsv2.testing import Stop, TestSource
from tests.values.awkward import CLASSES, annotation_at, value_at
from tests.values.on_local import environment
from tests.values.through_jobs import TYPED, Entry, KeepTyped, Reject, emitted, position_of
from tests.values.ways import Way, by_position


def stored() -> list[Way]:
    """The ways through savepoints and dead letters."""
    return [
        Way("savepoint", partial(_in_folder, _savepoint)),
        Way("edited savepoint", partial(_in_folder, _edited)),
        Way("bootstrap", partial(_in_folder, _bootstrapped)),
        Way("dead letter", partial(_in_folder, _dead_letter)),
        Way("replayed dead letter", partial(_in_folder, _replayed)),
    ]


def _in_folder(send: Callable[[Sequence[int], Path], Mapping[int, Any]], positions: Sequence[int]) -> Mapping[int, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return send(positions, Path(folder))


def _keep(records: list[Any]) -> tuple[ExecutionEnvironment, CollectSink[Entry]]:
    env, sink = environment(), CollectSink[Entry]()
    source = env.from_source(TestSource[int](records)).with_uid("source")
    source.key_by(position_of).process(KeepTyped()).with_uid("keep").to_sink(sink)
    return env, sink


def _records(positions: Sequence[int]) -> list[Any]:
    """The positions whose values are stored; after a stop, the numbers that read them."""
    return [*positions, Stop(), *(-1 - position for position in positions)]


def _taken(positions: Sequence[int], folder: Path) -> str:
    env, _ = _keep(_records(positions))
    job = env.execute_async("values")
    job.await_termination()
    return job.savepoint(str(folder / "savepoint"))


def _started_from(savepoint: str, positions: Sequence[int]) -> Mapping[int, Any]:
    env, sink = _keep(_records(positions))
    env.execute("values", savepoint=savepoint)
    return by_position(sink.results)


def _savepoint(positions: Sequence[int], folder: Path) -> Mapping[int, Any]:
    return _started_from(_taken(positions, folder), positions)


def _edited(positions: Sequence[int], folder: Path) -> Mapping[int, Any]:
    editor = Savepoint.open(_taken(positions, folder)).edit(types=CLASSES)
    for state in {TYPED[str(annotation_at(position))].name for position in positions}:
        editor = editor.map_state("keep", state, lambda key, value: value)
    return _started_from(editor.write(str(folder / "edited")), positions)


def _bootstrapped(positions: Sequence[int], folder: Path) -> Mapping[int, Any]:
    values: dict[str, dict[int, Any]] = {}
    for position in positions:
        values.setdefault(str(annotation_at(position)), {})[position] = value_at(position)
    env, sink = _keep([-1 - position for position in positions])
    given = bootstrap(env.build_plan("values"))
    for annotation, rows in values.items():
        given = given.put_state("keep", TYPED[annotation], rows)
    env.execute("values", savepoint=given.write(str(folder / "savepoint")))
    return by_position(sink.results)


def _rejected(
    positions: Sequence[int], folder: Path, *, corrected: bool = False
) -> tuple[ExecutionEnvironment, CollectSink[Entry]]:
    env, sink = environment(), CollectSink[Entry]()
    values = emitted(env, [*positions, Stop()]).with_uid("emit")
    values.process(Reject(corrected)).with_uid("reject").with_error_policy(ErrorPolicy().dead_letter()).to_sink(sink)
    return env, sink


def _letters_of(positions: Sequence[int], folder: Path) -> tuple[str, DeadLetters]:
    env, _ = _rejected(positions, folder)
    job = env.execute_async("values", dead_letters=str(folder / "letters"))
    job.await_termination()
    return job.savepoint(str(folder / "savepoint")), DeadLetters.open(folder / "letters")


def _dead_letter(positions: Sequence[int], folder: Path) -> Mapping[int, Any]:
    _, letters = _letters_of(positions, folder)
    return by_position(letters.record(letter, Entry, *CLASSES) for letter in letters.letters)


def _replayed(positions: Sequence[int], folder: Path) -> Mapping[int, Any]:
    savepoint, letters = _letters_of(positions, folder)
    again = Savepoint.open(savepoint).edit().replay(letters.letters).write(str(folder / "again"))
    env, sink = _rejected(positions, folder, corrected=True)
    env.execute("values", savepoint=again, dead_letters=str(folder / "letters"))
    return by_position(sink.results)
