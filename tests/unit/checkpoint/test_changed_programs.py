"""Every kind of change between two programs: what a restart and a start from a savepoint do about it.

Program A runs until it is stopped, and program B, which has the change, starts from its savepoint. Either both together
have the right result, or the start is refused with a message that names the subject. ``docs/restarts.md`` lists
the same changes, and is compared with this list.
"""

from __future__ import annotations

import re
from collections import Counter, namedtuple
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, Optional

import pytest

from dsv2 import OutputTag
from dsv2.aggregates import Count as Number
from dsv2.aggregates import Key, Max, Mean, Part, Sum
from dsv2.checkpoint.differences import differences
from dsv2.checkpoint.dropped_state import dropped_state
from dsv2.checkpoint.stored_classes import unreadable_classes
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.state import RedistributionStrategy, StateDeclarations, StateTtl
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests import ROOT
from tests.changed_programs import (
    COUNT,
    NEWEST,
    OTHER,
    RECORDS,
    SKIP,
    STOP,
    TALLY,
    Count,
    CountAside,
    CountInField,
    CountInKeyedField,
    CountInRecord,
    Numbered,
    Pass,
    Program,
    RenamedCount,
    Silent,
    TimedCount,
    aggregates,
    broadcast,
    by_three,
    longer_union,
    longer_windows,
    one_input,
    side_output,
    two_inputs,
    two_outputs,
    union,
    windows,
)


def same(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """The result of program A without an interruption."""
    return steady


def afresh(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """As if the later records were the first ones."""
    seen: Counter[int] = Counter()
    for record in RECORDS[STOP:]:
        seen[record % 5] += 1
        before[record % 5, seen[record % 5]] += 1
    return before


def also_later(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """The results after the savepoint are there twice."""
    return steady + (steady - before)


def once_later(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """Only the results before the savepoint are there twice."""
    half = Counter({result: count // 2 for result, count in steady.items()})
    return before + half - Counter({result: count // 2 for result, count in before.items()})


def with_more(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    return steady + Counter([100, 101])


def with_one_more(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """Another record with the key 0."""
    return steady + Counter([(0, 1 + max(count for key, count in steady if key == 0))])


def zeros(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    return before + Counter((record % 5, 0) for record in RECORDS[STOP:])


def without_last_field(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    return before + Counter(result[:-1] for result in (steady - before).elements())


def with_later_number(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """The added field has the number of the later records of the key."""
    earlier = {key: max(number for one, number in before if one == key) for key in range(5)}
    return before + Counter((key, number, number - earlier[key]) for key, number in (steady - before).elements())


def with_later_mean(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """The added field has the mean of the later records of the key, up to the one with this total."""
    later = {}
    for key in range(5):
        for last in range(key, len(RECORDS), 5):
            own = range(key, last + 1, 5)
            since = [number for number in own if number >= STOP]
            later[key, sum(own)] = sum(since) / len(since) if since else 0
    return before + Counter((*result, later[result]) for result in (steady - before).elements())


def with_mean_of_windows(before: Counter[Any], steady: Counter[Any]) -> Counter[Any]:
    """The added field has the mean of the later records in the window, or its default if there are none."""
    later = {}
    for start in range(0, len(RECORDS), 20):
        for key in range(5):
            own = range(start + key, start + 20, 5)
            since = [number for number in own if number >= STOP]
            later[key, sum(own)] = sum(since) / len(since) if since else 0
    return before + Counter((*result, later[result]) for result in (steady - before).elements())


class Change(NamedTuple):
    """A change of program A. ``restart`` and ``savepoint``: "allowed", "refused" or "with permission"."""

    restart: str
    savepoint: str
    before: dict[str, Any]
    now: dict[str, Any]
    expected: Callable[[Counter[Any], Counter[Any]], Counter[Any]] = same
    says: str = "'count'"


def stock(*fields: Any, name: str = "Stock") -> Any:
    """A version of the class ``shop.Stock``, or of another one."""
    made = make_dataclass(name, fields)
    made.__module__ = "shop"
    return made


def shades(*names: str) -> Any:
    made = Enum("Shade", {name: number for number, name in enumerate(names)})  # type: ignore[misc]
    made.__module__ = "shop"
    return made


new_tuple_class: Any = namedtuple  # type checkers want literals


def totals(*, kind: str = "Result", windowed: bool = False, **parts: Part) -> dict[str, Any]:
    """Aggregates in a version of the class ``shop.Result``. All fields but the first two have defaults."""
    made = new_tuple_class(kind, ["key", *parts], defaults=[0] * (len(parts) - 1))
    kinds = {name: float if isinstance(part, Mean) else int for name, part in parts.items()}
    made.__module__, made.__annotations__ = "shop", {"key": int, **kinds}
    return {"shape": aggregates(made, in_windows=windowed, key=Key(), **parts)}


def counts_in(kind: Any, **fields: Any) -> dict[str, Any]:
    return {"count": CountInRecord(kind, **fields)}


def value(name: str, form: Any, **options: Any) -> dict[str, Any]:
    return {"count": Count(StateDeclarations.value_state(name, form, **options))}


def passing(*declarations: WatermarkDeclaration[Any], made: Callable[[int], Any] = int) -> dict[str, Any]:
    return {"before": (("pass", Pass(*declarations, made=made)),)}


def mark(*fields: Any, name: str = "Mark") -> Any:
    """A version of the class ``Mark`` of watermark values, or of another one."""
    made = make_dataclass(name, fields, frozen=True, order=True)
    made.__module__ = __name__
    return made


def marking(kind: Any, **further: Any) -> dict[str, Any]:
    return passing(new_builder("newest").type_of(kind).combine_function_max().build(), made=kind) | further


def by_key(builder: Any, made: Callable[[int], Any]) -> dict[str, Any]:
    return passing(builder.combine_function_max().per_key(int).build(), made=made)


def uniting(member: type, made: Callable[[int], Any]) -> dict[str, Any]:
    return passing(new_builder("newest").type_set(member).combine_function_union().build(), made=made)


def of_list(strategy: str) -> dict[str, Any]:
    declared = StateDeclarations.list_state_builder("seen", int)
    built = declared.redistribute_by(RedistributionStrategy[strategy]).build() if strategy else declared.build()
    return {"count": Count(COUNT, built)}


class Shop:
    """Versions of classes. As attributes of this module, the job would also use the earlier ones."""

    INTS = stock(("count", int))
    TWO_INTS = stock(("count", int), ("size", int))
    WITH_DEFAULT = stock(("count", int), ("size", int, 3))
    REORDERED = stock(("size", int), ("count", int))
    OPTIONAL = stock(("count", int), ("size", Optional[int]))  # noqa: UP045
    FLOATS = stock(("count", float))
    SHELF = stock(("count", int), name="Shelf")
    SHADES = shades("DARK", "LIGHT")
    MORE_SHADES = shades("LIGHT", "GREY", "DARK")
    SHADED = stock(("count", int), ("shade", SHADES))
    RESHADED = stock(("count", int), ("shade", MORE_SHADES))
    UNSHADED = stock(("count", int), ("shade", shades("LIGHT")))
    MARKED = mark(("number", int))
    MARKED_ASIDE = mark(("number", int), ("size", int, 3))
    LABELLED = mark(("number", int), name="Label")


TTL, EVENT_TTL = StateTtl(timedelta(hours=1)), StateTtl(timedelta(hours=1), time_characteristic="event-time")
LONG, TEXT = new_builder("newest").type_long(), new_builder("newest").type_str()
MAX, MIN = NEWEST.combine_function_max().build(), NEWEST.combine_function_min().build()
IGNORED = NEWEST.combine_function_max().default_handling_strategy_ignore().build()
HELD, NUMBERED = (("pass", Pass()), ("numbered", Numbered())), (("numbered", Numbered()),)


def cents(count: str, version: int) -> int:
    return int(count)


SHAPES = {
    "one input": one_input, "two inputs": two_inputs, "broadcast": broadcast, "two outputs": two_outputs,
    "windows": windows, "union": union,
}  # fmt: skip
UP_AND_DOWN = {
    f"parallelism {way}, {kind}": Change("refused", "allowed", {"shape": shape}, {"shape": shape, "parallelism": now})
    for kind, shape in SHAPES.items()
    for way, now in (("up", 5), ("down", 1))
}

CHANGES: dict[str, Change] = {
    **UP_AND_DOWN,
    "parallelism of a source": Change("refused", "allowed", {}, {"source_parallelism": 3}),
    "parallelism with equal fields": Change("refused", "allowed", {}, {"parallelism": 3}),
    "parallelism with keyed fields": Change("refused", "allowed", {"count": CountInKeyedField()},
     {"count": CountInKeyedField(), "parallelism": 3}),
    "parallelism with other fields": Change("refused", "refused", {"count": CountInField()},
     {"count": CountInField(), "parallelism": 3}, says="'counts'"),
    "max parallelism": Change("refused", "allowed", {}, {"max_parallelism": 64}),
    "operator added at the source": Change("refused", "allowed", {}, {"before": (*NUMBERED, ("pass", Pass()))}),
    "operator added in the middle": Change("refused", "allowed", {}, {"before": HELD}),
    "operator added at the sink": Change("refused", "allowed", {}, {"after": NUMBERED}),
    "stateless operator removed": Change("refused", "allowed", {}, {"before": ()}),
    "operator with state removed": Change("refused", "with permission", {"before": HELD}, {}, says="'numbered'"),
    "operator moved": Change("refused", "allowed", {"before": HELD}, {"after": NUMBERED}),
    "uid changed": Change("refused", "with permission", {}, {"uid": "tally"}, afresh),
    "key selector changed": Change("refused", "refused", {}, {"key": by_three}),
    "function class renamed, with a uid": Change("allowed", "allowed", {}, {"count": RenamedCount()}),
    "function class renamed, without a uid": Change("refused", "with permission", {"uid": None},
     {"uid": None, "count": RenamedCount()}, afresh, says="Count"),
    "side output declared": Change("allowed", "allowed", {}, {"count": CountAside(TALLY)}),
    "side output renamed": Change("refused", "allowed",
     {"shape": side_output, "count": CountAside(TALLY), "after": NUMBERED},
     {"shape": side_output, "count": CountAside(OutputTag("tallies", tuple)), "after": NUMBERED}),
    "error policy": Change("allowed", "allowed", {"policy": SKIP}, {"policy": SKIP.limit(total=5)}),
    "error policy added": Change("allowed", "allowed", {}, {"policy": SKIP}),
    "kind of an operator": Change("refused", "refused", {}, {"shape": two_outputs}),
    "processing-time timers": Change("refused", "allowed", {}, {"count": TimedCount()}),
    "size of windows": Change("refused", "refused", {"shape": windows}, {"shape": longer_windows}),
    "aggregate of another kind": Change("refused", "refused", totals(total=Sum("real")), totals(total=Max("real")),
     says="'total'"),
    "aggregate of another field": Change("refused", "refused", totals(total=Sum("real")), totals(total=Sum("imag")),
     says="'total'"),
    "aggregate instead of the key": Change("refused", "refused", totals(total=Key()), totals(total=Sum("real")),
     says="total' of its results was Key()"),
    "aggregate of windows of another kind": Change("refused", "refused", totals(windowed=True, total=Sum("real")),
     totals(windowed=True, total=Max("real")), says="'total'"),
    "aggregate added": Change("allowed", "allowed", totals(number=Number()), totals(number=Number(), later=Number()),
     with_later_number),
    "mean added": Change("allowed", "allowed", totals(total=Sum("real")), totals(total=Sum("real"), mean=Mean("real")),
     with_later_mean),
    "mean of windows added": Change("allowed", "allowed", totals(windowed=True, total=Sum("real")),
     totals(windowed=True, total=Sum("real"), mean=Mean("real")), with_mean_of_windows),
    "mean of windows removed": Change("allowed", "allowed", totals(windowed=True, total=Sum("real"), mean=Mean("real")),
     totals(windowed=True, total=Sum("real")), without_last_field),
    "filter of an aggregate": Change("refused", "refused", totals(total=Sum("real")),
     totals(total=Sum("real", filter=bool)), says="'total'"),
    "aggregate removed": Change("allowed", "allowed", totals(total=Sum("real"), number=Number()),
     totals(total=Sum("real")), without_last_field),
    "aggregate of windows removed": Change("allowed", "allowed",
     totals(windowed=True, total=Sum("real"), number=Number()), totals(windowed=True, total=Sum("real")),
     without_last_field),
    "state added": Change("allowed", "allowed", {}, {"count": Count(COUNT, OTHER)}),
    "state removed": Change("with permission", "with permission", {"count": Count(COUNT, OTHER)}, {}, says="'other'"),
    "state renamed": Change("with permission", "with permission", {}, value("counted", int, default=0), afresh),
    "type of a state widened": Change("allowed", "allowed", {}, value("count", float, default=0.0)),
    "type of a state changed": Change("refused", "refused", {}, value("count", str)),
    "type of a state converted": Change("allowed", "allowed", {},
     value("count", float, default=0.0, version=2, migrate=lambda old, version: float(old))),
    "kind of a state": Change("refused", "refused", {}, {"count": Silent(StateDeclarations.list_state("count", int))}),
    "mode of a state": Change("refused", "refused", of_list("SPLIT"), of_list(""), says="'seen'"),
    "time to live of a state": Change("refused", "refused", {}, value("count", int, default=0, ttl=TTL)),
    "clock of a time to live": Change("refused", "refused", value("count", int, ttl=TTL),
     value("count", int, ttl=EVENT_TTL)),
    "class with a new field with a default": Change("allowed", "allowed", counts_in(Shop.INTS),
     counts_in(Shop.WITH_DEFAULT)),
    "class with a new field without a default": Change("refused", "refused", counts_in(Shop.INTS),
     counts_in(Shop.TWO_INTS, size=1), says="new field 'size'"),
    "class without a field": Change("allowed", "allowed", counts_in(Shop.TWO_INTS, size=1), counts_in(Shop.INTS)),
    "class with fields in another order": Change("allowed", "allowed", counts_in(Shop.TWO_INTS, size=1),
     counts_in(Shop.REORDERED, size=1)),
    "class with a wider field": Change("allowed", "allowed", counts_in(Shop.INTS), counts_in(Shop.FLOATS)),
    "class with an optional field": Change("allowed", "allowed", counts_in(Shop.TWO_INTS, size=1),
     counts_in(Shop.OPTIONAL, size=1)),
    "class with a narrower field": Change("refused", "refused", counts_in(Shop.FLOATS), counts_in(Shop.INTS),
     says="field 'count' of shop.Stock"),
    "class renamed, registered": Change("allowed", "allowed", counts_in(Shop.INTS),
     counts_in(Shop.SHELF) | {"types": ((Shop.SHELF, "shop.Stock"),)}),
    "class renamed, not registered": Change("refused", "refused", counts_in(Shop.INTS), counts_in(Shop.SHELF),
     says="'stock'"),
    "class of aggregates renamed, not registered": Change("refused", "refused",
     totals(windowed=True, total=Sum("real")), totals(windowed=True, kind="Sums", total=Sum("real")),
     says="may hold values of shop.Result"),
    "enumeration with a new member": Change("allowed", "allowed", counts_in(Shop.SHADED, shade=Shop.SHADES.DARK),
     counts_in(Shop.RESHADED, shade=Shop.MORE_SHADES.DARK)),
    "enumeration without a member": Change("refused", "refused", counts_in(Shop.SHADED, shade=Shop.SHADES.DARK),
     counts_in(Shop.UNSHADED, shade=None), says="'DARK'"),
    "watermark declared": Change("refused", "allowed", {}, passing(MAX)),
    "watermark no longer declared": Change("refused", "allowed", passing(MAX), passing()),
    "combination of a watermark": Change("refused", "refused", passing(MAX), passing(MIN), says="'newest'"),
    "type of a watermark": Change("refused", "refused", passing(MAX),
     passing(new_builder("newest").type_float().combine_function_max().build()), says="type_float()"),
    "type of a per-key watermark": Change("refused", "refused", by_key(LONG, int), by_key(TEXT, str),
     says="type_str()"),
    "members of a watermark": Change("refused", "refused", uniting(int, lambda number: {number}),
     uniting(str, lambda number: {str(number)}), says="of str"),
    "class of a watermark with a new field with a default": Change("allowed", "allowed", marking(Shop.MARKED),
     marking(Shop.MARKED_ASIDE)),
    "class of a watermark with another field": Change("refused", "refused", marking(Shop.MARKED),
     marking(mark(("number", str))), says="field 'number' of "),
    "class of a watermark renamed, registered": Change("allowed", "allowed", marking(Shop.MARKED),
     marking(Shop.LABELLED, types=((Shop.LABELLED, f"{__name__}.Mark"),))),
    "class of a watermark renamed, not registered": Change("refused", "refused", marking(Shop.MARKED),
     marking(Shop.LABELLED), says="Label"),
    "default handling of a watermark": Change("refused", "allowed", passing(MAX), passing(IGNORED)),
    "sink added": Change("allowed", "allowed", {}, {"sinks": ("out", "copy")}, also_later),
    "sink removed": Change("allowed", "allowed", {"sinks": ("copy", "out")}, {}, once_later),
    "source added": Change("refused", "allowed", {}, {"more": ("more",)}, with_more),
    "source removed": Change("refused", "with permission", {"more": ("more",)}, {}, says="'more'"),
    "stream added to a union": Change("refused", "allowed", {"shape": union}, {"shape": longer_union}, with_one_more),
    "stream removed from a union": Change("refused", "with permission", {"shape": longer_union}, {"shape": union},
     says="'other 100'"),
    "option of a source": Change("allowed", "allowed", {}, {"records_per_batch": 4}),
    "job name": Change("allowed", "allowed", {}, {"name": "renamed"}),
}  # fmt: skip


def on_restart(before: Program, now: Program, fields: Any) -> str:
    described, is_now = before.described(), now.described()
    plan = now.build(stops=False)[0].build_plan()
    if differences(described, is_now) or unreadable_classes([described], is_now, TypeRegistry.of(plan)):
        return "refused"
    return "with permission" if dropped_state(plan, described, fields) else "allowed"


@pytest.mark.parametrize("change", CHANGES)
def test_change(change: str, tmp_path: Path) -> None:
    restart, outcome, first, second, expected, says = CHANGES[change]
    before, now = Program(**first), Program(**second)
    job, results = before.run(stops=True)
    job.savepoint(tmp_path / "a")
    assert on_restart(before, now, {}) == restart
    if outcome != "allowed":
        with pytest.raises(IncompatibleCheckpointError, match=re.escape(says)):
            now.run(tmp_path / "a")
    if outcome == "refused":
        with pytest.raises(IncompatibleCheckpointError, match=re.escape(says)):
            now.run(tmp_path / "a", allow_dropped_state=True)
    elif outcome == "with permission":
        with pytest.warns(DroppedStateWarning, match=re.escape(says)):
            later = now.run(tmp_path / "a", allow_dropped_state=True)[1]
        assert results + later == expected(results.copy(), before.run()[1])
    else:
        assert results + now.run(tmp_path / "a")[1] == expected(results.copy(), before.run()[1])


def test_guide_lists_these_changes() -> None:
    """The rows of the table in the guide that name this test."""
    row = re.compile(
        r"^\| .* \| (allowed|migrated|refused|with permission)\b.* \| (allowed|refused|with permission)\b.* \| (.*) \|$"
    )
    listed = {}
    for line in (ROOT / "docs" / "restarts.md").read_text().splitlines():
        if found := row.match(line):
            listed.update(dict.fromkeys(re.findall("`([^`]*)`", found[3]), (found[1], found[2])))
    shown = {name: outcome for name, outcome in listed.items() if not name.startswith("test_")}
    migrated = {"allowed": "migrated", "with permission": "with permission", "refused": "refused"}
    assert shown == {
        name: (migrated[change.savepoint] if change.restart == "refused" else change.restart, change.savepoint)
        for name, change in CHANGES.items()
    }
