"""The scope of a watermark: which operators act on it, and how long a value counts.

It is part of the declaration, so an identifier means the same in the whole job, and is checked when the plan is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from dsv2.checks.arguments import as_milliseconds
from dsv2.errors import WatermarkDeclarationError


@dataclass(frozen=True, slots=True)
class WatermarkScope:
    """The scope of a watermark. The default is every operator that it reaches, without a limit in time.

    Attributes:
        uids: The operators that act on it, sorted. If there are ``groups`` as well, these and those.
        groups: The groups of operators that act on it, sorted.
        expires_after_ms: The processing time in ms after which the value of a channel no longer counts, unless it was
            sent again. None: it counts until another one replaces it.
        key_type: The type of the keys of a per-key watermark. None: it is not about keys.
    """

    uids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    expires_after_ms: int | None = None
    key_type: type[Any] | None = None

    @property
    def is_addressed(self) -> bool:
        """True if only some operators act on the watermark."""
        return bool(self.uids or self.groups)

    @staticmethod
    def checked_names(names: tuple[str, ...], known: tuple[str, ...], what: str) -> tuple[str, ...]:
        """Return the names in ``known`` and those that a user passes, sorted and each once.

        Args:
            names: The names that were passed.
            known: The names that were passed before.
            what: What they name, for the error message.

        Raises:
            WatermarkDeclarationError: There is none, or one is not a non-empty string.
        """
        if not names:
            raise WatermarkDeclarationError(f"Pass at least one {what}.")
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise WatermarkDeclarationError(f"A {what} must be a non-empty string, not {name!r}.")
        return tuple(sorted({*known, *names}))

    @staticmethod
    def checked_lifetime(duration: timedelta) -> int:
        """Return ``duration`` in ms. Raises ``WatermarkDeclarationError`` unless it is a duration of at least 1 ms."""
        return as_milliseconds(duration, "duration", at_least=1, error=WatermarkDeclarationError)


EVERYWHERE: Final = WatermarkScope()
"""The scope of a watermark that every operator acts on that it reaches, and that does not expire."""
