"""The names of tables, as users write them."""

from __future__ import annotations

import re

from dsv2.errors import ConfigurationError

__all__ = ("parse_table_name",)

_PART = r'"(?:[^"]|"")+"|[^".][^.]*'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def parse_table_name(name: str) -> list[str]:
    """Parse ``name`` or ``schema.name``. Either part may be quoted as in SQL; otherwise it is taken literally.

    Raises:
        ConfigurationError: It is neither.
    """
    parsed = _NAME.fullmatch(name)
    if parsed is None:
        raise ConfigurationError(
            f"{name!r} is not the name of a table. Write name or schema.name, in the spelling of the server's catalog. "
            f'Quote a part that contains a dot or begins with a quotation mark, as in SQL: schema."a.b".'
        )
    parts = [part for part in parsed.groups() if part is not None]
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]
