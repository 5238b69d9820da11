"""The oracle for inputs allows what was observed of Flink, and refuses what Flink cannot do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.oracles.channels import Element, Record, Rule, Signal, is_legal

A, B = Record("a"), Record("b")


def legal(rule: Rule, channels: Sequence[Sequence[int | Record]], received: Sequence[int | Record]) -> bool:
    def elements(given: Sequence[int | Record]) -> list[Element]:
        return [element if isinstance(element, Record) else Signal("w", element) for element in given]

    return is_legal({"w": rule}, [elements(channel) for channel in channels], elements(received))


@pytest.mark.parametrize(
    ("rule", "sent", "allowed", "refused"),
    [
        (Rule("MAX"), (1, 2), [[1, 2], [2], [2, 1]], [[], [1], [2, 1, 2], [1, 2, 1]]),
        (Rule("MIN"), (1, 2), [[1], [1, 2], [2, 1], [2, 1, 2]], [[], [2]]),
        (Rule("AND"), (False, True), [[False], [True, False], [False, True]], [[], [True]]),
        (Rule("OR"), (False, True), [[False, True], [True], [True, False]], [[], [False]]),
        (Rule("MAX", wait=True), (1, 2), [[2]], [[], [1], [2, 1], [1, 2]]),
        (Rule("MIN", wait=True), (1, 2), [[1], [1, 2]], [[], [2], [2, 1]]),
        (Rule("AND", wait=True, aligned=True), (True, True), [[True]], [[], [True, True]]),
        (Rule("AND", wait=True, aligned=True), (False, True), [[False]], [[True], [False, True]]),
    ],
)
def test_two_channels_with_a_watermark_each(
    rule: Rule, sent: tuple[int, int], allowed: list[list[int]], refused: list[list[int]]
) -> None:
    """The cases of Flink's ``WatermarkITCase``, and the ends, which release further watermarks."""
    channels = [[value] for value in sent]
    assert [received for received in allowed if not legal(rule, channels, received)] == []
    assert [received for received in refused if legal(rule, channels, received)] == []


def test_records_keep_their_place_in_their_channel() -> None:
    assert legal(Rule("MAX"), [[A, 1], [B]], [B, A, 1])
    assert legal(Rule("MAX"), [[A, 1], [B]], [A, 1, B])
    assert not legal(Rule("MAX"), [[A, 1], [B]], [1, A, B])
    assert not legal(Rule("MAX"), [[A, B], []], [B, A])
    assert not legal(Rule("MAX"), [[A, B], []], [A])
    assert not legal(Rule("MAX"), [[A], []], [A, A])


def test_aligned_watermark_holds_its_channel_back() -> None:
    aligned = Rule("MIN", wait=True, aligned=True)
    assert legal(aligned, [[1, A], [B, 2]], [B, 1, A])
    assert not legal(aligned, [[1, A], [B, 2]], [A, B, 1])
    assert not legal(aligned, [[1, A], [B, 2]], [B, A, 1])
    # The end of the other channel releases it.
    assert legal(aligned, [[1, A], [B]], [B, 1, A])
    assert not legal(aligned, [[1, A], [B]], [1, A, B])


def test_remaining_channel_is_delivered_to_wait_for_all() -> None:
    wait = Rule("MIN", wait=True)
    assert legal(wait, [[5, 6], []], [5, 6])
    assert legal(wait, [[5, 6], []], [6])  # both before the other ended
    assert not legal(wait, [[5, 6], []], [])
