"""Text from records, which are not trusted: shown without characters that control a terminal, and without errors."""

from __future__ import annotations

import json
import re
from typing import Final

_LINE_BREAKS_AND_TABS: Final = re.compile("([\n\t])")


def printable(text: str) -> str:
    r"""Return ``text`` in one line, with escapes such as ``\x1b`` for characters that are not printable."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def printable_lines(text: str) -> str:
    """Return the same, except that line breaks and tabs remain."""
    parts = _LINE_BREAKS_AND_TABS.split(text)
    parts[::2] = map(printable, parts[::2])
    return "".join(parts)


def printable_json(text: str) -> str:
    """Return a JSON document in one line with JSON's own escapes for characters that are not printable."""
    return text if text.isprintable() else "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


def safe_repr(value: object) -> str:
    """Return ``repr(value)``. Never raises: it may be code of the program, and refuses ints of thousands of digits."""
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__qualname__} whose __repr__ raised {type(error).__qualname__}>"
