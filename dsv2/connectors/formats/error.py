"""The error of decoders and encoders."""

from __future__ import annotations

from dsv2.base.printable import safe_repr


class FormatError(ValueError):
    """Bytes do not match their schema, or a schema or record does not match the record class.

    Error policies of sources apply to it. A registry that cannot be reached is not such an error: it raises
    ``JobError``, because the message itself may be valid.
    """


def reason_of(error: Exception) -> str:
    """Return the class and, if there is one, the message of ``error``."""
    return f"{type(error).__qualname__}: {error}" if str(error) else type(error).__qualname__


def shown(value: object, most: int = 200) -> str:
    """Return the representation of a value for an error, of at most so many characters."""
    return f"{safe_repr(value):.{most}}"
