"""Unsupported pairs of streams, and functions that do not match the pair."""

from __future__ import annotations

from tests.typing.given import Given


def pairs_that_do_not_exist(g: Given) -> None:
    g.keyed.connect_and_process(g.other_non_keyed, g.two_in)  # E: call-overload
    g.non_keyed.connect_and_process(g.other_keyed, g.two_in)  # E: call-overload
    g.global_.connect_and_process(g.other_non_keyed, g.two_in)  # E: arg-type
    g.global_.connect_and_process(g.other_broadcast, g.with_side)  # E: arg-type
    g.other_broadcast.connect_and_process(g.broadcast, g.with_side)  # E: call-overload
    g.other_broadcast.connect_and_process(g.global_, g.with_side)  # E: call-overload


def different_key_types(g: Given) -> None:
    g.keyed.connect_and_process(g.keyed_by_date, g.two_in)  # E: arg-type


def wrong_function(g: Given) -> None:
    g.non_keyed.connect_and_process(g.other_non_keyed, g.with_side)  # E: call-overload
    g.non_keyed.connect_and_process(g.other_broadcast, g.two_in)  # E: call-overload
    g.keyed.connect_and_process(g.other_keyed, g.one)  # E: call-overload


def inputs_the_wrong_way_round(g: Given) -> None:
    g.other_non_keyed.connect_and_process(g.non_keyed, g.two_in)  # E: arg-type, misc
    g.other_global.connect_and_process(g.global_, g.two_in)  # E: arg-type, misc
    g.broadcast.connect_and_process(g.other_keyed, g.with_side)  # E: arg-type, misc


def only_a_keyed_stream_stays_keyed(g: Given) -> None:
    g.non_keyed.connect_and_process(g.other_non_keyed, g.two_in, g.key_of_bytes)  # E: call-overload
    g.other_broadcast.connect_and_process(g.non_keyed, g.with_side, g.key_of_bytes)  # E: call-overload
