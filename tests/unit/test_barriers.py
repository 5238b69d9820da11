"""Barriers in the gates of one operator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dsv2 import JobError
from dsv2.errors import WatermarkDeclarationError
from dsv2.graph import Exchange
from dsv2.runtime.rescale.change import InputChange, Senders
from dsv2.runtime.rescale.gates import rescaled_gate
from dsv2.watermark import new_builder
from tests.barriers import DECLARATIONS, CrossingError, Inputs, barrier
from tests.support import ACTIVE, ENDED, IDLE


class TestOneInput:
    def test_channels_wait_for_the_same_id(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, "a", barrier(1), "b")
        assert inputs.new_output() == ["a"]
        inputs.send(0, 1, "c", barrier(1), "d")
        assert inputs.new_output() == ["c", ("day", 1), "b", "d"]

    def test_channel_that_skips_an_id_has_passed_it_and_stays_blocked(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, "a", barrier(3), "b")
        inputs.send(0, 1, "c", barrier(1), "d", barrier(2), "e", barrier(3), "f")
        assert inputs.new_output() == ["a", "c", ("day", 1), "d", ("day", 2), "e", ("day", 3), "b", "f"]

    @pytest.mark.parametrize("signal", [ENDED, IDLE])
    def test_ended_and_idle_channels_do_not_block(self, signal: Any) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, barrier(1), "a")
        assert inputs.new_output() == []
        inputs.send(0, 1, signal)
        assert inputs.new_output() == [("day", 1), "a"]
        inputs.send(0, 0, barrier(2), "b")
        assert inputs.new_output() == [("day", 2), "b"]

    def test_records_are_late_in_the_frame_in_which_the_channel_was_idle(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, barrier(1))
        inputs.send(0, 1, "in time", IDLE, ACTIVE, "late", "also late", barrier(1), "a")
        assert inputs.new_output() == ["in time", ("day", 1), "late", "also late", "a"]
        assert inputs.counts == {"late_barriers": 1, "records_late_for_barrier": 2}

    def test_id_that_is_complete_already_passes_silently(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 1, IDLE)
        inputs.send(0, 0, barrier(1), barrier(3), "a")
        assert inputs.new_output() == [("day", 1), ("day", 3), "a"]
        inputs.send(0, 1, ACTIVE, "b", barrier(2), "c", "d", barrier(3), "e", barrier(4), "f")
        assert inputs.new_output() == ["b", "c", "d", "e"]
        assert inputs.counts == {"late_barriers": 2, "records_late_for_barrier": 3}
        inputs.send(0, 0, barrier(4))
        assert inputs.new_output() == [("day", 4), "f"]

    def test_records_of_an_active_channel_before_a_new_id_are_not_late(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 1, IDLE)
        inputs.send(0, 0, barrier(1))
        inputs.send(0, 1, ACTIVE, "a", barrier(2))
        inputs.send(0, 0, barrier(2))
        assert inputs.new_output() == [("day", 1), "a", ("day", 2)]
        assert not inputs.counts

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
    def test_barrier_cuts_both_inputs_and_is_delivered_once(self) -> None:
        inputs = Inputs(2, 1)
        inputs.send(0, 0, "a", barrier(1), "behind a")
        inputs.send(0, 1, "b", barrier(1), "behind b")
        assert inputs.new_output() == ["a", "b"]
        inputs.send(1, 0, "c", barrier(1), "behind c")
        assert inputs.new_output() == ["c", ("day", 1), "behind c", "behind a", "behind b"]

    def test_input_that_skips_an_id_stays_blocked(self) -> None:
        inputs = Inputs(1, 1)
        inputs.send(1, 0, "a", barrier(2), "behind a")
        inputs.send(0, 0, barrier(1), "b")
        assert inputs.new_output() == ["a", ("day", 1), "b"]
        inputs.send(0, 0, barrier(2))
        assert inputs.new_output() == [("day", 2), "behind a"]

    def test_input_without_any_barrier_is_waited_for_until_it_ends(self) -> None:
        inputs = Inputs(1, 2)
        inputs.send(0, 0, barrier(1), "a", barrier(2), "b", ENDED)
        inputs.send(1, 0, "c", IDLE)
        assert inputs.new_output() == ["c"]
        inputs.send(1, 1, ENDED)
        assert inputs.new_output() == [("day", 1), ("idle", 1), "a", ("day", 2), "b", ("end", 0)]

    def test_end_of_an_input_is_completed_before_the_other_continues(self) -> None:
        inputs = Inputs(1, 1)
        inputs.send(0, 0, barrier(1), "a")
        inputs.send(1, 0, ENDED)
        assert inputs.new_output() == [("day", 1), ("end", 1), "a"]

    def test_three_inputs(self) -> None:
        """A union."""
        inputs = Inputs(1, 1, 1)
        for number in (2, 0):
            inputs.send(number, 0, f"before {number}", barrier(1), f"after {number}")
        assert inputs.new_output() == ["before 2", "before 0"]
        inputs.send(1, 0, barrier(1))
        assert inputs.new_output() == [("day", 1), "after 0", "after 2"]

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
    def test_time_counts_from_the_first_blocked_channel(self) -> None:
        inputs = Inputs(3)
        assert inputs.rounds.next_deadline() is None
        inputs.now_ms = 100
        inputs.send(0, 0, barrier(1, "bounded"), "a")
        inputs.now_ms = 900
        inputs.send(0, 1, barrier(1, "bounded"), "b")
        assert inputs.rounds.next_deadline() == 1100
        inputs.pass_time(1099)
        assert inputs.new_output() == []
        inputs.pass_time(1100)
        assert inputs.new_output() == [("bounded", 1), "a", "b"]
        assert inputs.rounds.next_deadline() is None
        assert inputs.counts == {"barriers_without_all_channels": 1}

    def test_no_channel_is_blocked_for_longer(self) -> None:
        """The channel that is ahead waits for the ids before its own as well."""
        inputs = Inputs(3)
        inputs.send(0, 0, barrier(5, "bounded"), "a")
        inputs.now_ms = 800
        inputs.send(0, 1, barrier(3, "bounded"), "b", barrier(4, "bounded"), "c")
        inputs.pass_time(1000)
        assert inputs.new_output() == [("bounded", 3), "b", ("bounded", 4), "c", ("bounded", 5), "a"]

    def test_records_of_a_channel_that_was_missing_are_late_once_its_barrier_arrives(self) -> None:
        inputs = Inputs(2, 1)
        inputs.send(0, 0, barrier(1, "bounded"))
        inputs.send(1, 0, barrier(1, "bounded"))
        inputs.pass_time(1000)
        inputs.restart()
        inputs.send(0, 1, "a", "b")
        inputs.restart()
        assert "late_barriers" not in inputs.counts
        inputs.send(0, 1, "c", barrier(1, "bounded"), "d", barrier(2, "bounded"), "e")
        assert inputs.new_output() == [("bounded", 1), "a", "b", "c", "d"]
        assert inputs.counts == {
            "barriers_without_all_channels": 1,
            "late_barriers": 1,
            "records_late_for_barrier": 3,
        }

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

    def test_restart_keeps_the_deadline(self) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, barrier(1, "bounded"), "a")
        inputs.now_ms = 500
        inputs.restart()
        assert inputs.rounds.next_deadline() == 1000

    @pytest.mark.parametrize("frames", [[("a", "b", "c", "d")], [("a", "b"), ("c",), ("d",)]])
    @pytest.mark.parametrize("restart", [False, True])
    def test_number_of_held_records_is_limited(self, frames: list[tuple[str, ...]], restart: bool) -> None:
        inputs = Inputs(2)
        inputs.send(0, 0, barrier(1, "bounded"), *frames[0][:-1])
        assert inputs.new_output() == []
        if restart:
            inputs.restart()
        inputs.send(0, 0, frames[0][-1])
        for frame in frames[1:]:
            inputs.send(0, 0, *frame)
        assert inputs.new_output() == [("bounded", 1), "a", "b", "c", "d"]
        inputs.send(0, 0, barrier(2, "bounded"), "e", "f", "g")
        assert inputs.new_output() == []

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
        assert first["held"] == [[1, "day", 2, 50]]
        assert first["channels"] == [[0], [1, 0, None, {"day": 3}]]
        assert "held" not in second
        inputs.send(0, 0, barrier(3))
        inputs.send(1, 0, barrier(3))
        assert "held" not in inputs.gates[0].report()
        assert inputs.gates[0].report()["values"] == {"day": 3}

    def test_of_many_channels_the_first_ones_are_reported(self) -> None:
        inputs = Inputs(40)
        for channel in range(39, 1, -1):
            inputs.now_ms += 10
            inputs.send(0, channel, barrier(1), "a")
        held = inputs.gates[0].report()["held"]
        assert [row[0] for row in held] == list(range(39, 23, -1))
        assert {row[0] for row in inputs.gates[0].report()["channels"]} == {0, 1, *range(24, 40)}


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
