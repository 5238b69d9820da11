"""Key selectors with wrong types."""

from __future__ import annotations

from tests.typing.given import Given


def a_selector_reads_the_record(g: Given) -> None:
    g.other_non_keyed.key_by(g.by_text)  # E: arg-type
    g.non_keyed.key_by(2)  # E: call-overload
    g.non_keyed.key_by(g.by_text, version="2")  # E: call-overload
    g.non_keyed.key_by(g.by_text, "name")  # E: call-overload
    g.non_keyed.key_by(lambda record: record.name)  # E: attr-defined


def a_key_is_hashable(g: Given) -> None:
    g.non_keyed.key_by(lambda record: [record])  # E: type-var


def a_new_key_has_the_type_of_the_old(g: Given) -> None:
    g.keyed.process(g.one, len)  # E: arg-type
    g.keyed.process(g.one, new_key_selector=g.key_of_list)  # E: arg-type
    g.keyed.process(g.two_out, first_key_selector=g.key_of_bytes, second_key_selector=len)  # E: arg-type
    g.keyed.process(g.two_out, first_key_selector=g.key_of_list, second_key_selector=g.key_of_bytes)  # E: arg-type
    g.keyed.connect_and_process(g.other_keyed, g.two_in, len)  # E: arg-type


def one_selector_for_each_output(g: Given) -> None:
    g.keyed.process(g.two_out, g.key_of_bytes)  # E: call-overload
    g.keyed.process(g.two_out, g.key_of_bytes, g.key_of_list)  # E: call-overload
    g.keyed.process(g.two_out, first_key_selector=g.key_of_bytes)  # E: call-overload
    g.keyed.process(g.one, first_key_selector=g.key_of_bytes)  # E: call-overload
    g.keyed.process(g.one, new_key_selecter=g.key_of_bytes)  # E: call-overload
    g.non_keyed.process(g.one, g.key_of_bytes)  # E: call-overload
