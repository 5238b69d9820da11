"""Barriers in the gates of one operator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dsv2 import JobError
from dsv2.errors import WatermarkDeclarationError
from dsv2.graph import Exchange
from dsv2.runtime.report.subtask_report import ChannelReport
from dsv2.runtime.rescale.change import InputChange, Senders
from dsv2.runtime.rescale.gates import rescaled_gate
from dsv2.watermark import new_builder
from tests.barriers import DECLARATIONS, CrossingError, Inputs, barrier
from tests.support import IDLE


class TestOneInput:
    @pytest.mark.parametrize("second", [5, 4])
    def test_ids_of_a_channel_must_increase(self, second: int) -> None:
        inputs = Inputs(2)
        inputs.send(0, 1, barrier(5))
        inputs.send(0, 0, barrier(5))
        inputs.restart()
        with pytest.raises(
            JobError, match=r"'op', input 0, channel 1: the barrier 'day' arrived with the id . after 5"
        ):
            inputs.send(0, 1, barrier(second))

    def test_thousands_of_rounds_in_one_frame(self) -> None:
        """Rounds must not be processed recursively."""
        inputs = Inputs(2, 1)
        for number, channel in ((0, 0), (0, 1), (1, 0)):
            inputs.send(number, channel, *map(barrier, range(3000)))
        assert inputs.new_output() == [("day", value) for value in range(3000)]

    def test_barriers_that_cross_are_reported(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, barrier(1), barrier(1, "other"))
        with pytest.raises(CrossingError):
            inputs.send(0, 1, barrier(1, "other"), barrier(1))


class TestSeveralInputs:
    def test_inputs_that_wait_for_each_other_are_reported(self) -> None:
        inputs = Inputs(1, 1)
        inputs.send(0, 0, barrier(1), barrier(1, "other"))
        with pytest.raises(
            JobError, match=r"wait for each other .* channel 0 of input 0 at 'day', channel 0 of input 1 at 'other'"
        ):
            inputs.send(1, 0, barrier(1, "other"))

    def test_barrier_of_the_broadcast_side_before_the_end_of_the_wait_is_reported(self) -> None:
        inputs = Inputs(1, 1)
        inputs.gates[0].block(10, lambda: pytest.fail("full"))
        with pytest.raises(JobError, match="input 0 at the wait for the broadcast side, channel 0 of input 1 at 'day'"):
            inputs.send(1, 0, barrier(1))


class TestBoundedWait:
    def test_records_before_another_aligned_watermark_count_once(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, barrier(1, "bounded"))
        inputs.pass_time(1000)
        inputs.send(0, 1, "a", barrier(1), "b", barrier(1, "bounded"))
        inputs.send(0, 0, barrier(1))
        assert inputs.counts["records_late_for_barrier"] == 2

    def test_failure_names_what_is_missing(self) -> None:
        inputs = Inputs(2, 2)
        inputs.send(0, 1, barrier(7, "failing"))
        inputs.send(1, 0, barrier(8, "failing"))
        inputs.send(1, 1, IDLE)
        inputs.pass_time(999)
        with pytest.raises(JobError) as caught:
            inputs.pass_time(1000)
        assert str(caught.value).startswith(
            "Operator 'op': the barrier 'failing' has waited for 0:00:01 (timeout). It has not received the id 7 or a "
            "greater one on: channel 0 of input 0. Blocked: channel 1 of input 0 at 7, channel 0 of input 1 at 8."
        )

    def test_limit_holds_over_all_channels(self) -> None:
        inputs = Inputs(2, 1)
        inputs.send(0, 0, barrier(1, "failing"), "a", "b")
        with pytest.raises(JobError, match=r"'failing' holds more than 3 records .* on: channel 1 of input 0"):
            inputs.send(1, 0, barrier(1, "failing"), "c", "d")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"timeout": 5}, "timeout must be a datetime.timedelta"),
            ({"timeout": timedelta(0)}, "timeout must be at least 1 ms"),
            ({"max_records": -1}, "max_records must be a whole number of 0 or more, or None, not -1"),
            ({"when_exceeded": "stop"}, "when_exceeded must be one of 'fail', 'proceed'"),
            ({"when_exceeded": "proceed"}, "when_exceeded='proceed' needs a limit"),
        ],
    )
    def test_wrong_arguments_are_refused(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(WatermarkDeclarationError, match=message):
            new_builder("day").type_long().barrier(**arguments)

    def test_other_combinations_are_refused(self) -> None:
        for builder in (
            new_builder("day").type_long().barrier().combine_function_max(),
            new_builder("day").type_long().barrier().combine_across_inputs(True),
            new_builder("day").type_long().barrier().aligned(False),
        ):
            with pytest.raises(WatermarkDeclarationError, match="a barrier always cuts all inputs at the least id"):
                builder.build()


class TestReport:
    def test_blocked_channels_are_reported(self) -> None:
        inputs = Inputs(2, 1)
        inputs.now_ms = 50
        inputs.send(0, 1, barrier(3), "a", "b")
        first, second = (gate.report() for gate in inputs.gates)
        blocked = ChannelReport(1, None, {"day": 3}, blocked_by="day", blocked_since_ms=50, records_held=2)
        assert first.channels == [ChannelReport(0), blocked]
        assert second.channels == [ChannelReport(0)]
        inputs.send(0, 0, barrier(3))
        inputs.send(1, 0, barrier(3))
        assert [channel.blocked_by for channel in inputs.gates[0].report().channels] == [None, None]
        assert inputs.gates[0].report().watermarks == {"day": 3}

    def test_of_many_channels_the_first_ones_are_reported(self) -> None:
        inputs = Inputs(40)
        for channel in range(39, 1, -1):
            inputs.now_ms += 10
            inputs.send(0, channel, barrier(1), "a")
        channels = inputs.gates[0].report().channels
        assert [one.channel for one in channels] == [0, 1, *range(24, 40)]
        assert [one.channel for one in channels if one.blocked_by] == [*range(24, 40)]


class TestOtherParallelism:
    @pytest.mark.parametrize("further", [False, True])
    def test_round_that_is_complete_in_some_subtasks_only_is_repeated(self, further: bool) -> None:
        """Each subtask has its own channel on the first input, so its rounds are its own."""
        old = [Inputs(1, 1), Inputs(1, 1)]
        old[0].send(0, 0, barrier(1), "a")
        for subtask, one in enumerate(old):
            one.send(1, 0, barrier(1), f"b{subtask}", barrier(2), f"e{subtask}")
        assert [one.new_output() for one in old] == [[("day", 1), "b0", "a"], []]
        new = Inputs(2, 1)
        changes = (
            InputChange(Senders.SAME, Exchange.FORWARD, Exchange.HASH, 2, 2),
            InputChange(Senders.SAME, Exchange.HASH, Exchange.HASH, 1, 1),
        )
        for number, change in enumerate(changes):
            states = [one.gates[number].snapshot() for one in old]
            new.gates[number].restore(rescaled_gate(states, change, 0, DECLARATIONS, lambda record, _: 0))
        for gate in new.gates:
            gate.settle()
        new.send(0, 0, "later", *([barrier(2), "behind"] if further else []))
        assert new.new_output() == ["later"]
        new.send(0, 1, "c", barrier(1), "d")
        assert new.new_output() == ["c", ("day", 1), "d", "b1"]
        for channel in [1] if further else [0, 1]:
            new.send(0, channel, barrier(2))
        assert new.new_output() == [("day", 2), *(["behind"] if further else []), "e0", "e1"]
        assert not new.counts


class TestOtherChannels:
    def test_former_channels_stay_blocked_until_the_new_ones_have_sent_the_id(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, barrier(1), barrier(2), "a")
        inputs.send(0, 1, barrier(1), "b")
        inputs.restart([3])
        assert inputs.new_output() == [("day", 1), "b"]
        for channel in range(3):
            inputs.send(0, channel, f"new {channel}", barrier(2), f"later {channel}")
        assert inputs.new_output() == ["new 0", "new 1", "new 2", ("day", 2), "later 0", "later 1", "later 2", "a"]

    def test_new_channels_do_not_deliver_an_id_again(self) -> None:
        inputs = Inputs(2)
        for channel in (0, 1):
            inputs.send(0, channel, barrier(1))
        inputs.restart([1])
        inputs.send(0, 0, "a", barrier(1), "b", barrier(2))
        assert inputs.new_output() == [("day", 1), "a", "b", ("day", 2)]
