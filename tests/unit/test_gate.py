"""One input: what its channels send, put together and handed to the operator behind it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import IncompatibleCheckpointError, InternalError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.record_batch import RecordBatch
from dsv2.runtime.exchange.gate import InputGate
from dsv2.watermark import LongWatermarkBuilder, WatermarkDeclaration, new_builder
from dsv2.watermark.event_time import EVENT_TIME
from tests.support import ACTIVE, ENDED, IDLE, STARTED, Signal, packed, watermark


def long(identifier: str) -> LongWatermarkBuilder:
    return new_builder(identifier).type_long()


DECLARATIONS: dict[str, WatermarkDeclaration] = {
    "w": long("w").combine_function_min().build(),
    "all": long("all").combine_function_max().combine_wait_for_all_channels(True).build(),
    "aligned": long("aligned").combine_function_max().combine_wait_for_all_channels(True).aligned().build(),
    "and": new_builder("and").type_bool().combine_wait_for_all_channels(True).aligned().build(),
    EVENT_TIME: EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION,
}


class Gate:
    """A gate, and what it has told its listener: records, watermarks as pairs, "idle", "active", "end"."""

    def __init__(self, channels: int) -> None:
        self.channels = channels
        self.told: list[Any] = []
        self.gate = InputGate(5, channels, DECLARATIONS, self)

    def send(self, channel: int, *sequence: Any) -> None:
        self.gate.receive(channel, *packed(sequence))

    def news(self) -> list[Any]:
        """What was told since the last call."""
        told, self.told = self.told, []
        return told

    def restart(self) -> None:
        state = copy.deepcopy(self.gate.snapshot())
        self.gate = InputGate(5, self.channels, DECLARATIONS, self)
        self.gate.restore(state)

    def rescale(self, channels: int) -> None:
        """Restart with another number of channels."""
        self.channels = channels
        self.restart()

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        assert input_index == 5
        assert batch
        self.told += [r if t is None else (r, t) for r, t in batch.pairs()]

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        assert input_index == 5
        self.told.append((identifier, value))

    def on_status(self, input_index: int, idle: bool) -> None:
        assert input_index == 5
        self.told.append("idle" if idle else "active")

    def on_end(self, input_index: int) -> None:
        assert input_index == 5
        self.told.append("end")

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        assert input_index == 5
        raise CrossingError(waiting)


class CrossingError(Exception):
    """What the operator behind a gate raises."""


def aligned(value: int) -> Signal:
    return watermark(value, "aligned")


def test_records_and_watermarks_keep_their_places() -> None:
    gate = Gate(1)
    gate.send(0, watermark(1), "a", "b", watermark(2), watermark(3), "c", watermark(4), ENDED)
    assert gate.news() == [("w", 1), "a", "b", ("w", 2), ("w", 3), "c", ("w", 4), "end"]


def test_records_without_controls_are_handed_on_as_they_are() -> None:
    """Not as a copy: this is where all records pass."""
    gate, batch = Gate(2), RecordBatch(["a", "b"])
    received: list[Any] = []
    gate.on_records = lambda input_index, batch: received.append(batch)  # type: ignore[method-assign]
    gate.gate.receive(1, batch, [])
    assert received[0] is batch


def test_each_identifier_is_combined_over_the_channels_for_itself() -> None:
    gate = Gate(2)
    gate.send(0, watermark(5), watermark(7, "all"))
    gate.send(1, watermark(3, "all"), watermark(6), watermark(4))
    assert gate.news() == [("w", 5), ("all", 7), ("w", 4)]


def test_what_opens_a_subtask_says_nothing_more() -> None:
    gate = Gate(1)
    gate.send(0, STARTED, "a")
    assert gate.news() == ["a"]


@pytest.mark.parametrize("signal", [Signal(17), Signal(-1, "w", 3)])
def test_an_unknown_control_element_is_our_own_mistake(signal: Signal) -> None:
    with pytest.raises(InternalError, match="Unknown control element"):
        Gate(1).send(0, signal)


class TestAligned:
    def test_what_follows_waits_until_every_channel_has_sent_its_watermark(self) -> None:
        gate = Gate(3)
        gate.send(0, "a", aligned(1), "behind a")
        gate.send(0, "later", watermark(3))
        gate.send(1, "b", aligned(4))
        gate.send(1, "behind b")
        assert gate.news() == ["a", "b"]
        assert gate.gate.held_records == 3
        gate.send(2, "c", aligned(2), "behind c")
        assert gate.news() == ["c", ("aligned", 4), "behind a", "later", ("w", 3), "behind b", "behind c"]
        assert gate.gate.held_records == 0

    def test_the_function_of_the_declaration_is_applied(self) -> None:
        """Flink delivers whichever came last: true."""
        gate = Gate(2)
        gate.send(0, watermark(False, "and"))
        gate.send(1, watermark(True, "and"))
        assert gate.news() == [("and", False)]

    def test_equal_rounds_are_all_delivered(self) -> None:
        gate = Gate(2)
        for channel in (0, 1, 1, 0):
            gate.send(channel, aligned(1))
        assert gate.news() == [("aligned", 1), ("aligned", 1)]

    def test_two_rounds_in_one_frame(self) -> None:
        gate = Gate(2)
        gate.send(0, "a", aligned(1), "b", aligned(2), "c")
        gate.send(1, aligned(3))
        assert gate.news() == ["a", ("aligned", 3), "b"]
        gate.send(1, "d", aligned(4), "e")
        assert gate.news() == ["d", ("aligned", 4), "c", "e"]

    def test_as_many_rounds_as_a_frame_can_hold(self) -> None:
        """No call for every round stays on the stack."""
        gate = Gate(2)
        for channel in (0, 1):
            gate.send(channel, *map(aligned, range(3000)))
        assert gate.news() == [("aligned", value) for value in range(3000)]

    def test_two_identifiers_that_wait_for_each_other_are_told_apart(self) -> None:
        gate = Gate(2)
        gate.send(0, aligned(1), watermark(True, "and"), "a")
        gate.send(1, aligned(2), watermark(False, "and"), "b")
        assert gate.news() == [("aligned", 2), ("and", False), "a", "b"]

    def test_the_end_of_a_channel_waits_with_the_rest(self) -> None:
        gate = Gate(2)
        gate.send(0, aligned(1), "a", ENDED)
        gate.send(1, "b")
        assert not gate.gate.ended
        gate.send(1, aligned(2), ENDED)
        assert gate.news() == ["b", ("aligned", 2), "a", "end"]

    def test_a_channel_that_ends_releases_the_others(self) -> None:
        """Flink's job hangs here."""
        gate = Gate(2)
        gate.send(0, aligned(1), "a")
        gate.send(1, ENDED)
        assert gate.news() == [("aligned", 1), "a"]
        gate.send(0, aligned(2), "b", ENDED)
        assert gate.news() == [("aligned", 2), "b", "end"]

    def test_the_last_end_is_told_once_although_it_waits_behind_what_it_releases(self) -> None:
        gate = Gate(2)
        gate.send(0, aligned(1), ENDED)
        gate.send(1, ENDED)
        assert gate.news() == [("aligned", 1), "end"]

    def test_an_idle_channel_is_not_waited_for(self) -> None:
        gate = Gate(2)
        gate.send(1, IDLE)
        gate.send(0, aligned(1), "a")
        assert gate.news() == [("aligned", 1), "a"]

    def test_a_channel_that_goes_idle_releases_the_others(self) -> None:
        gate = Gate(2)
        gate.send(0, aligned(1), "a")
        gate.send(1, IDLE)
        assert gate.news() == [("aligned", 1), "a"]

    def test_a_channel_that_is_active_again_is_waited_for(self) -> None:
        gate = Gate(2)
        gate.send(1, IDLE, ACTIVE)
        gate.send(0, aligned(1), "a")
        assert gate.news() == []
        gate.send(1, aligned(2))
        assert gate.news() == [("aligned", 2), "a"]

    def test_what_is_held_survives_a_restart(self) -> None:
        gate = Gate(2)
        gate.send(0, aligned(1), "a", watermark(5), "b", aligned(2), "c")
        gate.restart()
        gate.send(0, "d", ENDED)
        gate.restart()
        gate.send(1, aligned(3), "e", ENDED)
        assert gate.news() == [("aligned", 3), "a", ("w", 5), "b", "e", ("aligned", 2), "c", "d", "end"]


class TestCrossing:
    """Flink's job hangs, and holds the records for ever."""

    @pytest.mark.parametrize("restart", [False, True])
    def test_watermarks_that_cross_are_reported_with_who_sent_them(self, restart: bool) -> None:
        gate = Gate(3)
        gate.send(0, aligned(1), "a", watermark(True, "and"), "b")
        gate.send(1, "c")
        if restart:
            gate.restart()
        with pytest.raises(CrossingError) as caught:
            gate.send(2, watermark(True, "and"), "d", aligned(2), "e")
        assert caught.value.args == ({0: "aligned", 2: "and"},)

    def test_an_end_behind_the_watermark_changes_nothing(self) -> None:
        gate = Gate(2)
        gate.send(0, aligned(1), "a", ENDED)
        with pytest.raises(CrossingError):
            gate.send(1, watermark(True, "and"), "b", ENDED)

    def test_what_is_released_may_cross(self) -> None:
        gate = Gate(2)
        gate.send(0, aligned(1), aligned(1), "a")
        with pytest.raises(CrossingError):
            gate.send(1, aligned(1), watermark(True, "and"), "b")

    def test_nobody_waits_for_the_watermark_of_an_idle_channel(self) -> None:
        gate = Gate(3)
        gate.send(0, IDLE, aligned(1), "a")
        gate.send(1, watermark(False, "and"), "b", aligned(2), "c")
        assert gate.news() == []
        gate.send(2, watermark(True, "and"), aligned(3))
        assert gate.news() == [("and", False), "b", ("aligned", 3), "a", "c"]


class TestIdle:
    def test_the_input_is_idle_when_all_channels_are(self) -> None:
        gate = Gate(3)
        for channel in (0, 1, 1):
            gate.send(channel, IDLE)
        assert gate.news() == []
        gate.send(2, IDLE)
        assert gate.news() == ["idle"]
        gate.send(0, ACTIVE)
        assert gate.news() == ["active"]
        gate.send(1, ACTIVE)
        assert gate.news() == []

    def test_an_idle_channel_does_not_hold_watermarks_back(self) -> None:
        gate = Gate(2)
        gate.send(0, watermark(5), watermark(5, "all"))
        gate.send(1, watermark(3))
        assert gate.news() == [("w", 5), ("w", 3)]
        gate.send(1, IDLE)
        assert gate.news() == [("w", 5), ("all", 5)]
        gate.send(1, ACTIVE)
        assert gate.news() == [("w", 3)]

    def test_an_identifier_that_is_new_does_not_wait_for_channels_that_are_idle_or_ended(self) -> None:
        gate = Gate(3)
        gate.send(0, IDLE)
        gate.send(1, ENDED)
        gate.send(2, watermark(1, "all"), aligned(1), "a")
        assert gate.news() == [("all", 1), ("aligned", 1), "a"]

    def test_ended_channels_are_neither_idle_nor_waited_for(self) -> None:
        gate = Gate(2)
        gate.send(0, IDLE)
        gate.send(1, ENDED)
        assert gate.news() == ["idle"]
        gate.send(0, ACTIVE, ENDED)
        assert gate.news() == ["active", "end"]

    def test_an_input_whose_last_channel_ends_while_idle_has_ended(self) -> None:
        gate = Gate(2)
        gate.send(0, IDLE, ENDED)
        assert gate.news() == []
        gate.send(1, IDLE, ENDED)
        assert gate.news() == ["idle", "end"]

    def test_what_an_idle_channel_sends_counts_once(self) -> None:
        gate = Gate(2)
        gate.send(0, watermark(9), watermark(9, "all"))
        gate.send(1, IDLE)
        gate.news()
        gate.send(1, watermark(2), watermark(99, "all"), aligned(5))
        assert gate.news() == [("w", 2), ("w", 9), ("all", 99)]
        gate.send(0, watermark(10, "all"), aligned(6))
        assert gate.news() == [("all", 10), ("aligned", 6)]

    def test_it_counts_at_once_if_nobody_is_active(self) -> None:
        gate = Gate(1)
        gate.send(0, IDLE, watermark(1, "all"), watermark(2), ENDED)
        assert gate.news() == ["idle", ("all", 1), ("w", 2), "end"]

    def test_an_input_is_active_before_what_comes_of_it(self) -> None:
        gate = Gate(1)
        gate.send(0, watermark(1), IDLE)
        gate.send(0, watermark(2), ACTIVE)
        assert gate.news() == [("w", 1), "idle", ("w", 2), "active"]


class TestEnd:
    def test_what_was_sent_before_an_end_counts_whoever_is_read_first(self) -> None:
        gate = Gate(2)
        gate.send(1, watermark(100, "all"), ENDED)
        gate.restart()
        assert gate.news() == []
        gate.send(0, watermark(99, "all"), ENDED)
        assert gate.news() == [("all", 100), "end"]

    def test_a_minimum_rises_with_the_end_of_the_least_and_a_maximum_does_not_fall(self) -> None:
        gate = Gate(2)
        for channel, value in ((0, 1), (1, 50)):
            gate.send(channel, watermark(value), watermark(50 - value, "all"))
        assert gate.news() == [("w", 1), ("all", 49)]
        gate.send(0, ENDED)
        assert gate.news() == [("w", 50)]

    def test_the_input_ends_with_its_last_channel(self) -> None:
        gate = Gate(3)
        gate.send(2, ENDED)
        gate.send(0, ENDED)
        assert (gate.news(), gate.gate.ended) == ([], False)
        gate.send(1, "a", ENDED)
        assert (gate.news(), gate.gate.ended) == (["a", "end"], True)

    def test_watermarks_that_an_end_releases_come_before_the_end(self) -> None:
        gate = Gate(2)
        gate.send(0, watermark(1, "all"), ENDED)
        assert gate.news() == []
        gate.send(1, ENDED)
        assert gate.news() == [("all", 1), "end"]

    def test_a_channel_that_has_ended_is_neutral(self) -> None:
        """In Flink its last value counts for ever."""
        gate = Gate(2)
        gate.send(0, watermark(1), ENDED)
        gate.send(1, watermark(50), watermark(60))
        assert gate.news() == [("w", 1), ("w", 50), ("w", 60)]

    def test_a_second_end_is_our_own_mistake(self) -> None:
        gate = Gate(2)
        gate.send(0, ENDED)
        with pytest.raises(InternalError, match="Channel 0 of input 5 ended twice"):
            gate.send(0, ENDED)
        gate.send(0)
        with pytest.raises(InternalError, match="Channel 0 of input 5 sent records after its end"):
            gate.send(0, "a")
        gate.send(0)
        with pytest.raises(InternalError, match="Channel 0 of input 5 sent records after its end"):
            gate.send(0, "a")


SIGNALS = [*map(watermark, range(3)), *map(aligned, range(3)), watermark(2, "all"), IDLE, ACTIVE]


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[int, Sequence[Any]]]]:
    """Frames of some channels; every channel ends with its last one."""
    channels = draw(st.integers(1, 3))
    sequence = st.lists(st.sampled_from([*SIGNALS, "a", "b", "c"]), max_size=6)
    frames = [(channel, frame) for channel in range(channels) for frame in draw(st.lists(sequence, max_size=3))]
    shuffled = draw(st.permutations(frames))
    return channels, [*shuffled, *((channel, [ENDED]) for channel in draw(st.permutations(range(channels))))]


@given(histories())
def test_a_restart_between_any_two_frames_changes_nothing(
    history: tuple[int, list[tuple[int, Sequence[Any]]]],
) -> None:
    """Flink's combiners begin empty again."""
    channels, frames = history
    steady, restarted = Gate(channels), Gate(channels)
    for channel, sequence in frames:
        steady.send(channel, *sequence)
        restarted.send(channel, *sequence)
        restarted.restart()
    assert restarted.told == steady.told
    assert steady.gate.ended
    assert steady.told.count("end") == 1
    assert steady.told[-1] == "end"


@given(histories())
def test_no_record_is_lost_or_overtaken_within_its_channel(
    history: tuple[int, list[tuple[int, Sequence[Any]]]],
) -> None:
    channels, frames = history
    gate = Gate(channels)
    sent: dict[int, list[Any]] = {channel: [] for channel in range(channels)}
    for number, (channel, sequence) in enumerate(frames):
        numbered = [e if isinstance(e, Signal) else (channel, number, index) for index, e in enumerate(sequence)]
        sent[channel] += [element for element in numbered if not isinstance(element, Signal)]
        gate.send(channel, *numbered)
    for channel, records in sent.items():
        assert [told for told in gate.told if len(told) == 3 and told[0] == channel] == records


SIGNALS_OF_ROUNDS = [aligned(0), watermark(True, "and")]
ROUNDS = st.lists(st.sampled_from([aligned(0), watermark(True, "and"), "a", watermark(1)]), max_size=6)


@given(st.lists(ROUNDS, min_size=1, max_size=4), st.data())
def test_channels_with_aligned_watermarks_are_all_processed_or_cross(
    sequences: list[list[Any]], data: st.DataObject
) -> None:
    """In no order of reading are records held for ever; and it is not the order of reading that makes them cross."""
    turns = [channel for channel, sequence in enumerate(sequences) for _ in range(len(sequence) + 1)]

    def crosses() -> bool:
        gate, scripts = Gate(len(sequences)), [iter([*sequence, ENDED]) for sequence in sequences]
        try:
            for channel in data.draw(st.permutations(turns)):
                gate.send(channel, next(scripts[channel]))
        except CrossingError:
            return True
        assert gate.gate.ended
        assert gate.gate.held_records == 0
        assert gate.told.count("a") == sum(sequence.count("a") for sequence in sequences)
        return False

    crossed = crosses()
    assert crosses() == crossed
    identifiers = [[e.identifier for e in sequence if e in SIGNALS_OF_ROUNDS] for sequence in sequences]
    longest = max(identifiers, key=len)
    if all(some == longest[: len(some)] for some in identifiers):
        assert not crossed


# --- Another number of channels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 5])
def test_new_channels_are_waited_for_and_event_time_does_not_go_back(channels: int) -> None:
    gate = Gate(3)
    for channel in range(3):
        gate.send(channel, watermark(10 + channel, EVENT_TIME), watermark(7, "w"))
    gate.send(2, IDLE)
    assert gate.news() == [("w", 7), (EVENT_TIME, 10)]
    gate.rescale(channels)
    for channel in range(channels):
        assert gate.news() == []
        gate.send(channel, watermark(9, EVENT_TIME))
    assert gate.news() == []
    for channel in range(channels):
        gate.send(channel, watermark(11, EVENT_TIME), watermark(7, "w"))
    assert gate.news() == [(EVENT_TIME, 11)]  # and the same value of "w" is no news
    gate.send(0, ENDED)
    assert gate.news() == (["end"] if channels == 1 else [])


def test_an_idle_input_stays_so_until_one_of_the_new_channels_is_active() -> None:
    gate = Gate(2)
    gate.send(0, IDLE)
    gate.send(1, IDLE)
    assert gate.news() == ["idle"]
    gate.rescale(3)
    gate.send(0, IDLE)
    assert gate.news() == []
    gate.send(1, ACTIVE, watermark(5, EVENT_TIME))
    assert gate.news() == ["active", (EVENT_TIME, 5)]


def test_an_input_that_has_ended_in_part_ends_anew_and_one_that_has_ended_stays_so() -> None:
    gate = Gate(2)
    gate.send(0, ENDED)
    gate.rescale(3)
    for channel in range(3):
        assert not gate.gate.ended
        gate.send(channel, ENDED)
    assert gate.news() == ["end"]
    gate.rescale(2)
    assert gate.gate.ended


def test_records_that_wait_behind_an_aligned_watermark_keep_the_channels() -> None:
    gate = Gate(2)
    gate.send(0, aligned(1), "a")
    with pytest.raises(IncompatibleCheckpointError, match="Input 5 had 2 channels and now has 3"):
        gate.rescale(3)


def test_what_the_old_channels_sent_counts_with_what_the_new_ones_send() -> None:
    gate = Gate(2)
    gate.send(0, watermark(7, "all"))
    gate.rescale(3)
    for channel in range(3):
        assert gate.news() == []
        gate.send(channel, watermark(channel, "all"))
    assert gate.news() == [("all", 7)]
