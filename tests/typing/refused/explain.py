"""Mistakes with explanations."""

from __future__ import annotations

from dsv2 import ExecutionEnvironment, new_builder

END_OF_DAY = new_builder("end-of-day").type_str().barrier().build()


def channels(env: ExecutionEnvironment) -> None:
    env.explain("png")  # E: arg-type
    env.explain().channels(END_OF_DAY)  # E: arg-type
    env.explain().channels("end-of-day", "totals")  # E: call-arg
    env.explain().channels().render("json")  # E: arg-type
