"""The side outputs of a function: those that it declares, or, for callables, those that the program reads."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import Any

from dsv2.errors import PlanError
from dsv2.functions import ProcessFunction
from dsv2.model.output_tag import OutputTag


def declared_outputs(body: object, where: str) -> list[OutputTag[Any]]:
    """The tags that ``body`` declares. Raises ``PlanError``, which names ``where``, if two have the same name."""
    if not isinstance(body, ProcessFunction):
        return []
    declared = body.declare_outputs()
    if not isinstance(declared, Collection):
        raise PlanError(
            f"{where}: declare_outputs returned {declared!r}, not a collection of tags. Return a list or a tuple."
        )
    by_name: dict[str, OutputTag[Any]] = {}
    for tag in declared:
        if not isinstance(tag, OutputTag):
            raise PlanError(
                f'{where}: declare_outputs returned {tag!r}, not a tag. Create one: OutputTag("name", type).'
            )
        if by_name.setdefault(tag.name, tag) != tag:
            raise PlanError(
                f"{where}: declare_outputs returned two tags with the name {tag.name!r}: {by_name[tag.name]!r} and "
                f"{tag!r}. A name is unique among the outputs of a function."
            )
    if isinstance(declared, Set):
        return [by_name[name] for name in sorted(by_name)]  # the order of a set differs between processes
    return list(by_name.values())


def find_output(tags: list[OutputTag[Any]], tag: OutputTag[Any], reading_declares: bool, where: str) -> int:
    """Return the index of ``tag`` in ``tags``.

    Args:
        tags: The side outputs of a function.
        tag: The side output that the program reads.
        reading_declares: Whether ``tag`` is added to ``tags`` if its name is new.
        where: What the errors begin with.

    Raises:
        PlanError: The function does not declare ``tag``.
    """
    named = next((known for known in tags if known.name == tag.name), None)
    if named is None and reading_declares:
        tags.append(tag)
    elif named is None:
        raise PlanError(
            f"{where}: the function does not declare the output {tag!r} (declared: {list_tags(tags)}). Return it from "
            f"declare_outputs()."
        )
    elif named != tag:
        raise PlanError(f"{where}: the output {tag.name!r} is {named!r}, not {tag!r}. Use the same tag.")
    return tags.index(tag)


def list_tags(tags: Collection[OutputTag[Any]]) -> str:
    """``tags`` for an error message."""
    return ", ".join(map(repr, tags)) or "none"
