"""Diagrams of channels: recorded text and diagrams, what subtasks do with watermarks, and what is left out."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, new_builder
from dsv2.errors import ConfigurationError
from dsv2.sinks import CollectSink
from dsv2.views.explain import ChannelDiagram, explain
from tests.documented_channels import addressed, combined, per_key
from tests.explained_program import recorded
from tests.support import broadcast_side, one_input, two_inputs

SVG = "{http://www.w3.org/2000/svg}"
READY = new_builder("ready").type_long().build()
ALL_READY = new_builder("ready").type_long().combine_wait_for_all_channels(True).build()
BOTH_READY = new_builder("ready").type_long().combine_function_max().combine_across_inputs(True).build()
ALIGNED = new_builder("ready").type_long().combine_wait_for_all_channels(True).aligned().build()
BARRIER = new_builder("ready").type_long().barrier().build()
SUM = new_builder("ready").type_long().combine_function_sum().build()
OF_KEY = new_builder("ready").type_long().per_key(int).build()
OTHER = new_builder("other").type_long().build()


def channels(build: Callable[[ExecutionEnvironment], Any], parallelism: int = 2, **chosen: Any) -> ChannelDiagram:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(parallelism)
    build(env)
    return explain(env.build_plan("job")).channels(**chosen)


def emitter(env: ExecutionEnvironment, declaration: Any = READY, name: str = "emitter") -> Any:
    source = env.from_collection([1], f"source of {name}").with_uid(f"source of {name}")
    return source.process(one_input(declare_watermarks=lambda: [declaration])).with_uid(name)


def handler() -> Any:
    return one_input(on_watermark=lambda *args: None)


def ended(stream: Any) -> None:
    stream.to_sink(CollectSink())


def section(diagram: ChannelDiagram, operator: str) -> list[str]:
    """Return the lines of the text about an operator."""
    (found,) = (part for part in str(diagram).split("\n\n") if part.startswith(f"{operator}  ["))
    return [line.strip() for line in found.splitlines()[1:]]


def drawn(diagram: ChannelDiagram, kind: str) -> dict[str, str]:
    """The channels or subtasks of the image, with their classes."""
    elements = ET.fromstring(diagram.render("svg")).iter()
    return {name: one.get("class", "") for one in elements if (name := one.get(f"data-{kind}"))}


def test_text_of_an_addressed_watermark() -> None:
    assert str(addressed().channels("closed-day")) == (
        """\
sales: channels of closed-day
  [long, min]

close days  [2 subtasks]
  declares it

check  [2 subtasks]
  MIN of 2 channels
  passes it on, not called
  from close days: rebalance, carries closed-day
    subtask 0 to 0, 1
    subtask 1 to 0, 1

totals  [2 subtasks]
  MIN of 2 channels
  calls on_watermark
  from check: rebalance, carries closed-day
    subtask 0 to 0, 1
    subtask 1 to 0, 1

archive  [1 subtask]
  from close days: rebalance, without closed-day, carries none of the watermarks
    subtask 0 to 0
    subtask 1 to 0"""
    )


def test_image_has_a_title_and_all_channels_as_text() -> None:
    diagram = combined().channels("backlog")
    root = ET.fromstring(diagram.render("svg"))
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "scores: channels of backlog"
    assert root.findtext(f"{SVG}desc") == str(diagram) == repr(diagram)
    assert diagram._repr_svg_() == diagram.render("svg")


def test_watermark_about_one_key_goes_to_one_subtask() -> None:
    diagram = per_key().channels("complete")
    assert "subtask 0 to 0, 1, 2: that of the key" in section(diagram, "sessions")
    assert section(diagram, "sessions")[:3] == [
        "for each key: AND of 2 channels, waits for all",
        "calls on_key_watermark",
        "it ends here",
    ]
    assert drawn(diagram, "channel") == {
        f"1.{source}-2.{target}-0": "line of-key" if target == 0 else "line of-other-keys"
        for source in range(2)
        for target in range(3)
    }


def test_edge_to_others_is_drawn_as_one_that_does_not_carry_it() -> None:
    marks = drawn(addressed().channels("closed-day"), "channel")
    assert marks["1.0-2.1-0"] == marks["2.1-3.0-0"] == "line carries"
    assert marks["1.0-5.0-0"] == marks["1.1-5.0-0"] == "line bare"


def test_union_combines_its_inputs() -> None:
    def build(env: ExecutionEnvironment) -> None:
        others = emitter(env, ALL_READY, "a"), emitter(env, ALL_READY, "b")
        ended(others[0].union(others[1]).with_uid("union").key_by(int).process(handler()).with_uid("after"))

    diagram = channels(build, watermark="ready")
    assert section(diagram, "union")[:2] == ["MIN of 2 inputs, waits for all", "passes it on"]
    assert "input 2 from b: forward, carries ready" in section(diagram, "union")
    assert drawn(diagram, "channel").keys() >= {"1.0-4.0-0", "1.1-4.1-0", "3.0-4.0-1", "3.1-4.1-1"}
    assert "1.0-4.1-0" not in drawn(diagram, "channel")


def test_union_over_channels_combines_twice() -> None:
    def build(env: ExecutionEnvironment) -> None:
        ended(emitter(env, READY, "a").shuffle().union(emitter(env, READY, "b")).with_uid("union"))

    assert (
        section(channels(build, watermark="ready"), "union")[0] == "MIN of the channels of each input, then of 2 inputs"
    )


def test_union_passes_no_sum_on() -> None:
    diagram = channels(lambda env: ended(emitter(env, SUM, "a").union(emitter(env, SUM, "b")).with_uid("union")))
    assert section(diagram, "union")[0] == "ready: does not pass it on"
    assert not any("SUM" in line for line in section(diagram, "union"))


def test_two_inputs_combine_by_themselves_and_perhaps_together() -> None:
    def build(env: ExecutionEnvironment, declaration: Any) -> None:
        first, second = emitter(env, declaration, "a").key_by(int), emitter(env, declaration, "b").key_by(int)
        ended(first.connect_and_process(second, two_inputs()).with_uid("both"))

    alone = section(channels(lambda env: build(env, READY), watermark="ready"), "both")
    assert alone[:3] == ["input 1: MIN of 2 channels", "input 2: MIN of 2 channels", "passes it on"]
    together = section(channels(lambda env: build(env, BOTH_READY), watermark="ready"), "both")
    assert together[2] == "forwards MAX of both inputs"


def test_broadcast_input_without_the_watermark() -> None:
    def build(env: ExecutionEnvironment) -> None:
        rules = env.from_collection([1]).with_uid("rules").broadcast()
        ended(emitter(env).connect_and_process(rules, broadcast_side()).with_uid("both"))

    diagram = channels(build, watermark="ready")
    assert section(diagram, "both")[0] == "input 1: one channel"
    assert "input 2 from rules: broadcast, carries none of the watermarks" in section(diagram, "both")
    assert {mark for name, mark in drawn(diagram, "channel").items() if name.endswith("-1")} == {"line bare"}


def gates(diagram: ChannelDiagram) -> int:
    """The number of marks of channels that are blocked, without that of the legend."""
    marks = [one for one in ET.fromstring(diagram.render("svg")).iter() if one.get("class") == "gate"]
    return max(0, len(marks) - 1)


def test_aligned_watermark_blocks_the_channels_of_one_input() -> None:
    def build(env: ExecutionEnvironment) -> None:
        one = emitter(env, ALIGNED).map(abs).with_uid("chained")
        ended(one.shuffle().process(handler()).with_uid("after").with_parallelism(3))

    diagram = channels(build, watermark="ready")
    assert gates(diagram) == 6
    assert section(diagram, "chained")[0] == "one channel"
    assert any(line.endswith("blocked until other channels have sent it") for line in section(diagram, "after"))
    assert gates(channels(lambda env: ended(emitter(env).shuffle().map(abs)), watermark="ready")) == 0


def test_barrier_blocks_the_channels_of_all_inputs_that_send_it() -> None:
    def build(env: ExecutionEnvironment) -> None:
        ended(emitter(env, BARRIER, "a").union(env.from_collection([1]).with_uid("b")).with_uid("union"))

    diagram = channels(build, watermark="ready")
    assert section(diagram, "union")[0] == "cuts 2 channels at one point"
    assert gates(diagram) == 2  # of the first input in both subtasks; the other one never sends the barrier
    assert section(channels(lambda env: ended(emitter(env, BARRIER).map(abs).with_uid("m"))), "m")[0] == (
        "ready: one channel, never blocked"
    )


def test_chains_with_one_subtask() -> None:
    def build(env: ExecutionEnvironment) -> None:
        one = emitter(env, BARRIER)
        one.process(handler()).with_uid("first").key_by(int).process(handler()).with_uid("second").to_sink(
            CollectSink()
        )
        one.map(abs).with_uid("aside").to_sink(CollectSink())

    diagram = channels(build, parallelism=1, watermark="ready")
    assert drawn(diagram, "subtask").keys() == {"1.0", "2.0", "3.0", "5.0"}
    assert set(drawn(diagram, "channel").values()) == {"line carries"}
    assert len(drawn(diagram, "channel")) == 3
    assert gates(diagram) == 0
    boxes = [one for one in ET.fromstring(diagram.render("svg")).iter() if one.get("class") == "box"]
    assert len(boxes) == 1


def test_parts_of_a_chain_are_drawn_apart() -> None:
    def build(env: ExecutionEnvironment) -> None:
        one = env.from_collection([1]).with_parallelism(1).map(abs).with_uid("first")
        for name in ("a", "b"):
            declared = one.process(one_input(declare_watermarks=lambda: [READY])).with_uid(name)
            ended(declared.shuffle().map(abs).with_parallelism(2).with_uid(f"after {name}"))

    diagram = channels(build, parallelism=1, watermark="ready")
    assert drawn(diagram, "subtask").keys() == {"2.0", "3.0", "3.1", "5.0", "6.0", "6.1"}
    assert "from first" not in str(diagram)


def test_few_of_many_subtasks_are_drawn() -> None:
    def build(env: ExecutionEnvironment) -> None:
        ended(emitter(env).shuffle().map(abs).with_uid("after").with_parallelism(4))

    diagram = channels(build, parallelism=1000, watermark="ready")
    assert section(diagram, "after")[-4:] == [
        "subtask 0 to 0, 1, ..., 3",
        "subtask 1 to 0, 1, ..., 3",
        "...",
        "subtask 999 to 0, 1, ..., 3",
    ]
    assert section(diagram, "after")[0] == "MIN of 1000 channels"
    assert drawn(diagram, "subtask").keys() == {f"{one}" for one in ("1.0", "1.1", "1.999", "2.0", "2.1", "2.3")}
    assert len(drawn(diagram, "channel")) == 9
    assert ">997 more<" in diagram.render("svg")
    assert ">1 more<" in diagram.render("svg")
    assert '"… 997 more"' in diagram.render("mermaid")


def test_forward_edge_between_many_subtasks() -> None:
    diagram = channels(lambda env: ended(emitter(env).map(abs).with_uid("m")), parallelism=5)
    assert drawn(diagram, "channel").keys() >= {"1.0-2.0-0", "1.1-2.1-0", "1.4-2.4-0"}
    assert section(diagram, "m")[-4:] == ["subtask 0 to 0", "subtask 1 to 1", "...", "subtask 4 to 4"]


def many(env: ExecutionEnvironment, operators: int = 17) -> None:
    stream = emitter(env)
    for number in range(operators - 2):
        stream = stream.shuffle().map(abs).with_uid(f"m{number}")
    ended(stream)


def test_diagram_of_many_operators_is_refused(tmp_path: Path) -> None:
    diagram = channels(many)
    assert "m14  [2 subtasks]" in str(diagram)
    assert diagram._repr_svg_() is None
    for use in (
        lambda: diagram.render("svg"),
        lambda: diagram.render("mermaid"),
        lambda: diagram.save(tmp_path / "a.svg"),
    ):
        with pytest.raises(
            ConfigurationError, match=r"the channels of 17 operators .* It may have 16. Choose a watermark"
        ):
            use()
    assert channels(lambda env: many(env, 16)).render("svg").startswith("<svg ")
    into = channels(many, watermark="ready", operator="m3")
    assert list(drawn(into, "subtask")) == ["4.0", "4.1", "5.0", "5.1"]
    assert str(into).startswith("job: channels into m3 of ready\n")


def test_all_watermarks_are_shown_by_name() -> None:
    diagram = recorded().channels()
    assert section(diagram, "reserve")[:2] == [
        "stock-full: input 1: AND of 2 channels, waits for all",
        "stock-full: calls on_watermark_from_non_broadcast_input",
    ]
    assert "event time: advances event time" in section(diagram, "hourly")
    assert "from time: hash, carries stock-full, event time" in section(diagram, "hourly")
    assert "totals" not in str(diagram)  # a sink
    of_time = recorded().channels("event time")
    assert drawn(of_time, "subtask").keys() == {"6.0", "6.1", "7.0", "7.1", "7.2"}


def test_other_watermarks_are_left_out() -> None:
    def build(env: ExecutionEnvironment) -> None:
        ended(emitter(env, OTHER, "a").shuffle().map(abs).with_uid("after a"))
        ended(emitter(env, READY, "b").shuffle().map(abs).with_uid("after b"))

    assert "after a" not in str(channels(build, watermark="ready"))
    assert "after a" in str(channels(build))


def test_mistakes_are_named() -> None:
    explanation = recorded()
    with pytest.raises(
        ConfigurationError, match=r"'orders' declares no watermark 'x'. Its watermarks: 'stock-full', 'event "
    ):
        explanation.channels("x")
    with pytest.raises(ConfigurationError, match="no operator 'check' among those of these channels: 'time', 'hourly'"):
        explanation.channels("event time", operator="check")
    for use in (lambda: explanation.channels().render("json"), lambda: explanation.channels().save("a.json")):  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match=r"must be one of"):
            use()
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).with_uid("same").to_sink(CollectSink()).with_uid("same")
    with pytest.raises(
        ConfigurationError, match=r"no channels, because it cannot be built.*Two operators have the uid 'same'"
    ):
        env.explain().channels()


def test_save_chooses_the_format_by_suffix(tmp_path: Path) -> None:
    diagram = combined().channels("backlog")
    for name, start in (("c.svg", "<svg "), ("c.mmd", "flowchart TB\n"), ("c.txt", "scores: channels of backlog\n")):
        diagram.save(tmp_path / name)
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


def test_odd_names_are_escaped() -> None:
    odd = "a\x00b\x1b[31m <script>alert(1)</script> \"q\" & 'x'\nnew ü 検索 👩‍👩‍👧"
    declaration = new_builder(odd).type_long().build()

    def build(env: ExecutionEnvironment) -> None:
        ended(emitter(env, declaration, odd).shuffle().map(abs).with_uid(f"after {odd}"))

    diagram = channels(build, watermark=odd)
    ET.fromstring(diagram.render("svg"))
    for format in ("svg", "mermaid", "text"):
        text = diagram.render(format)
        assert not {"\x00", "\x1b"} & set(text)
        assert format == "text" or "<script>" not in text


def test_edges_of_the_view_say_what_they_carry() -> None:
    view = addressed().view
    assert {(edge.source, edge.target): edge.carries for edge in view.edges} == {
        (0, 1): (),
        (1, 2): ("closed-day",),
        (2, 3): ("closed-day",),
        (3, 4): (),
        (1, 5): (),
        (5, 6): (),
    }


def test_broadcast_side_sends_a_watermark_about_one_key_to_all_subtasks() -> None:
    def build(env: ExecutionEnvironment) -> None:
        main = env.from_collection([1]).with_uid("main").key_by(int)
        ended(main.connect_and_process(emitter(env, OF_KEY).broadcast(), broadcast_side()).with_uid("both"))

    marks = drawn(channels(build, watermark="ready"), "channel")
    assert {mark for name, mark in marks.items() if name.endswith("-1")} == {"line carries"}


def test_callback_is_the_one_of_the_kind_of_the_watermark() -> None:
    def build(env: ExecutionEnvironment, declaration: Any) -> None:
        both = one_input(on_watermark=lambda *args: None, on_key_watermark=lambda *args: None)
        ended(emitter(env, declaration).key_by(int).process(both).with_uid("both"))

    of_key = channels(lambda env: build(env, OF_KEY), watermark="ready")
    assert "calls on_key_watermark" in section(of_key, "both")
    plain = channels(lambda env: build(env, READY), watermark="ready")
    assert "calls on_watermark" in section(plain, "both")


def test_all_edges_between_drawn_operators_are_drawn() -> None:
    def build(env: ExecutionEnvironment) -> None:
        source = env.from_collection([1]).with_uid("source").map(abs).with_uid("start")
        sender = source.process(one_input(declare_watermarks=lambda: [READY])).with_uid("sender")
        ended(sender.union(source).with_uid("union"))

    assert "from start: chained, carries none of the watermarks" in section(
        channels(build, watermark="ready"), "sender"
    )


def test_channels_leave_at_the_side_of_an_operator_within_a_chain() -> None:
    def build(env: ExecutionEnvironment) -> None:
        one = emitter(env)
        ended(one.map(abs).with_uid("chained").shuffle().map(abs).with_uid("below"))
        ended(one.shuffle().map(abs).with_uid("aside"))

    svg = ET.fromstring(channels(build, watermark="ready").render("svg"))
    paths = {name: one.get("d", "") for one in svg.iter() if (name := one.get("data-channel"))}
    aside = {name for name, path in paths.items() if "H" in path}
    assert aside == {f"1.{source}-5.{target}-0" for source in (0, 1) for target in (0, 1)}
