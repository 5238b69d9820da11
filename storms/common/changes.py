"""Changes of the program ``storms.jobs.changing`` between two starts, each with its allowed outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from storms.common.outcome import Outcome

__all__ = ("CHANGES", "Change")

_RIGHT = (Outcome.RIGHT,)
_REFUSED = (Outcome.NAMED,)
_EITHER = (Outcome.RIGHT, Outcome.NAMED)
_WARNED = (Outcome.RIGHT, Outcome.NAMED, Outcome.WARNED)


@dataclass(frozen=True)
class Change:
    """A change of the program.

    Attributes:
        name: The name of the change.
        wanted: The allowed outcomes.
        edits: Pairs of old and new text of ``program.py``.
        names: A refusal must contain one of these.
        helper: Pairs of old and new text of ``helper.py``.
        prepare: Modifies the folder before the start.
        checkpoint: The name of the checkpoint in the folder.
    """

    name: str
    wanted: Sequence[Outcome]
    edits: Sequence[tuple[str, str]] = ()
    names: Sequence[str] = ()
    helper: Sequence[tuple[str, str]] = ()
    prepare: Callable[[Path], None] | None = None
    checkpoint: str = "checkpoint"


def _with_wildcards(folder: Path) -> None:
    (folder / "checkpoint").rename(folder / "ck[1]")


def _by_another_python(folder: Path) -> None:
    (file,) = (folder / "checkpoint/dsv2/job").glob("*.json")
    record = json.loads(file.read_text())
    for program in record["programs"]:
        program["python"] = "3.0"
    del record["crc32"]
    file.write_text(json.dumps(record))


def _used_folder(folder: Path) -> None:
    (folder / "used").mkdir()
    (folder / "used/part-0.parquet").write_bytes(b"of another run")


_SELECTOR = (
    "def by_key(record: Record) -> str:\n    return record.key",
    "def by_key(record: Record) -> str:\n    return record.place",
)
_FILE_SINK = '    counts.to_sink(FileSink(f"{folder}/files", schema=Line))\n'
_ONCE = '    streams["once"] = records.key_by(by_key).process(Count("once"))\n'
_TWICE = '    streams["twice"] = records.key_by(by_key).process(CountTwice("twice"))\n'
_PAIR = "    records: int\n    highest: int\n"
_HELD = "    name: str\n    records: int\n"
_EMISSION = "        ctx.non_partitioned_context.watermark_manager.emit_watermark(MARK.new_watermark(record.value))\n"
_MAP = 'records.map(same).with_uid("mapped").key_by'

CHANGES: Sequence[Change] = (
    Change("nothing", _RIGHT),
    Change("job name", _RIGHT, [('env.execute("changing"', 'env.execute("renamed"')]),
    Change("class of a function renamed", _RIGHT, [("InField", "InAttribute")]),
    Change("constructor argument", _RIGHT, [('Count("counts")', 'Count("counts", 20_000)')]),
    Change(
        "body of a function",
        _RIGHT,
        [
            (
                '        output.collect(Line("field", record',
                '        assert record\n        output.collect(Line("field", record',
            )
        ],
    ),
    Change("micro-batches of another size", _RIGHT, [("records_per_batch=PER_BATCH", "records_per_batch=50")]),
    # --- key selectors ---
    Change("key selector", _REFUSED, [_SELECTOR], ["'counts'"]),
    Change(
        "what the key selector calls in an imported module",
        _REFUSED,
        names=["'helper'"],
        helper=[("record.key", "record.place")],
    ),
    Change(
        "method of the record that the key selector calls",
        _REFUSED,
        [
            (
                "def own_key(self) -> str:\n        return self.key",
                "def own_key(self) -> str:\n        return self.place",
            )
        ],
        ["'method'"],
    ),
    Change(
        "dict of the module that the key selector reads", _REFUSED, [('{"column": 0}', '{"column": 1}')], ["'table'"]
    ),
    Change(
        "method that a callable key selector calls",
        _REFUSED,
        [
            (
                "def chosen(self, record: Record) -> str:\n        return record.key",
                "def chosen(self, record: Record) -> str:\n        return record.place",
            )
        ],
        ["'callable'"],
    ),
    Change("key selector renamed", _EITHER, [("by_key", "key_of")], ["'counts'"]),
    Change(
        "key selector, checkpoint of another Python",
        (Outcome.NAMED, Outcome.WARNED),
        [_SELECTOR],
        ["'counts'"],
        prepare=_by_another_python,
    ),
    Change("nothing, checkpoint of another Python", _RIGHT, prepare=_by_another_python),
    Change("nothing, checkpoint named ck[1]", _RIGHT, prepare=_with_wildcards, checkpoint="ck[1]"),
    Change(
        "key selector, checkpoint named ck[1]",
        _REFUSED,
        [_SELECTOR],
        ["'counts'"],
        prepare=_with_wildcards,
        checkpoint="ck[1]",
    ),
    # --- records ---
    Change(
        "fields of the record swapped",  # and the argument that makes the selector of 'table'
        _EITHER,
        [("    key: str\n    place: str\n", "    place: str\n    key: str\n"), ('{"column": 0}', '{"column": 1}')],
        ["'table'"],
    ),
    Change(
        "field of the record added",
        _RIGHT,
        [("    value: int\n\n    def own", "    value: int\n    more: int = 0\n\n    def own")],
    ),
    # --- operators ---
    Change("uid", _REFUSED, [('with_uid("pair")', 'with_uid("pairs")')], ["'pair'"]),
    Change("two operators without uid swapped", _EITHER, [(_ONCE + _TWICE, _TWICE + _ONCE)], ["Process"]),
    Change(
        "operator without uid added before others without",
        _EITHER,
        [(_ONCE, '    streams["new"] = records.key_by(by_key).process(Count("new"))\n' + _ONCE)],
        ["Process"],
    ),
    Change(
        "operator with uid added",
        _EITHER,
        [(_ONCE, '    streams["new"] = records.key_by(by_key).process(Count("new")).with_uid("new")\n' + _ONCE)],
        ["'new'"],
    ),
    Change(
        "operator removed",
        _EITHER,
        [('        "declared": records.key_by(by_key).process(Declared()).with_uid("declared"),\n', "")],
        ["'declared'"],
    ),
    Change("stateless operator removed", _EITHER, [(_MAP, "records.key_by")], ["'mapped'"]),
    Change(
        "stateless operator added",
        _EITHER,
        [(_MAP, 'records.map(same).with_uid("first").map(same).with_uid("mapped").key_by')],
        ["'first'"],
    ),
    Change("another class under the same uid", _WARNED, [("process(InField())", "process(Declared())")], ["field"]),
    Change("parallelism of the job", _EITHER, [("env.set_parallelism(2)", "env.set_parallelism(3)")], ["parallelism"]),
    Change(
        "parallelism of an operator",
        _EITHER,
        [('with_uid("pair")', 'with_uid("pair").with_parallelism(1)')],
        ["'pair'"],
    ),
    Change("max parallelism", _EITHER, [('with_uid("pair")', 'with_uid("pair").with_max_parallelism(64)')], ["'pair'"]),
    Change(
        "parallelism of the source",
        _EITHER,
        [('with_uid("source")', 'with_uid("source").with_parallelism(1)')],
        ["'source'"],
    ),
    Change("state layout", _EITHER, [("StateLayout.BLOB", "StateLayout.MAP")], ["layout"]),
    Change("number of partitions", _EITHER, [("StateLayout.BLOB", "StateLayout.BLOB, partitions=1")], ["partitions"]),
    # --- states ---
    Change("state renamed", _WARNED, [('value_state("declared"', 'value_state("counted"')], ["declared"]),
    Change(
        "type of a state, int to str",
        _REFUSED,
        [('value_state("declared", int, default=0)', 'value_state("declared", str, default="")')],
        ["'declared'"],
    ),
    Change(
        "state of a value to a list",
        _REFUSED,
        [('value_state("declared", int, default=0)', 'list_state("declared", int)')],
        ["'declared'"],
    ),
    Change("field of a function renamed", _WARNED, [("self.seen", "self.counts")], ["seen"]),
    Change("NamedTuple in state, fields swapped", _EITHER, [(_PAIR, "    highest: int\n    records: int\n")], ["Pair"]),
    Change(
        "NamedTuple in state, field with default added", _EITHER, [(_PAIR, _PAIR + "    more: int = 0\n")], ["Pair"]
    ),
    Change(
        "NamedTuple in state, field removed",
        _EITHER,
        [(_PAIR, "    records: int\n"), (", highest=0", ""), (", highest=record.value", "")],
        ["Pair"],
    ),
    Change(
        "NamedTuple in state renamed",
        _EITHER,
        [("Pair(", "Couple("), (", Pair)", ", Couple)")],
        ["Pair"],
    ),
    Change("dataclass in state, field with default added", _RIGHT, [(_HELD, _HELD + "    more: int = 0\n")], ["Held"]),
    Change(
        "dataclass in state, field without default added",
        _REFUSED,
        [
            (_HELD, _HELD + "    more: int\n"),
            ("Held(name=record.key", "Held(more=0, name=record.key"),
            ("Held(name=before.name", "Held(more=before.more, name=before.name"),
        ],
        ["Held"],
    ),
    Change(
        "dataclass in state, field removed",
        _EITHER,
        [
            (_HELD, "    records: int\n"),
            ("name=record.key, ", ""),
            ("name=before.name, ", ""),
            ("before.name", "record.key"),
        ],
        ["Held"],
    ),
    Change("dataclass in state, fields swapped", _EITHER, [(_HELD, "    records: int\n    name: str\n")], ["Held"]),
    Change("dataclass in state, type of a field", _REFUSED, [(_HELD, "    name: str\n    records: str\n")], ["Held"]),
    Change(
        "dataclass in state, frozen with slots",
        _EITHER,
        [("@dataclass\n", "@dataclass(frozen=True, slots=True)\n")],
        ["Held"],
    ),
    Change("dataclass in state renamed", _EITHER, [("Held", "Kept")], ["Held"]),
    Change(
        "dataclass in state moved to another module",
        _EITHER,
        [("@dataclass\nclass Held:\n" + _HELD, "Held = helper.Held\n")],
        ["Held"],
        helper=[
            (
                '__all__ = ("pick",)\n',
                '__all__ = ("pick",)\nfrom dataclasses import dataclass\n@dataclass\nclass Held:\n' + _HELD,
            )
        ],
    ),
    # --- watermarks ---
    Change("function of a watermark", _REFUSED, [("combine_function_max", "combine_function_min")], ["'mark'"]),
    Change("watermark waits for all channels", _REFUSED, [("channels(False)", "channels(True)")], ["'mark'"]),
    Change(
        "watermark no longer declared",
        _REFUSED,
        [
            ("        return [MARK]", "        return []"),
            (_EMISSION, ""),
        ],
        ["'mark'"],
    ),
    # --- sinks ---
    Change("sink added", _RIGHT, [(_FILE_SINK, _FILE_SINK + _FILE_SINK.replace("files", "more"))]),
    Change("sink removed", _RIGHT, [(_FILE_SINK, "")]),
    Change("path of a sink", _RIGHT, [("{folder}/files", "{folder}/elsewhere")]),
    Change(
        "sink added on the path of another one",
        _REFUSED,
        [(_FILE_SINK, _FILE_SINK + _FILE_SINK.replace("files", "files/").replace("counts.", 'streams["pair"].'))],
        ["files"],
    ),
    Change(
        "path of a sink, used by another run",
        _REFUSED,
        [("{folder}/files", "{folder}/used")],
        ["used"],
        prepare=_used_folder,
    ),
)
