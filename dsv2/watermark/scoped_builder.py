"""The part of the builders of watermark declarations that sets the scope."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from datetime import timedelta
from typing import Self, TypeVar

from dsv2.watermark.declaration import EVERYWHERE, WatermarkScope
from dsv2.watermark.keyed import Buildable, PerKeyBuilder

V = TypeVar("V")
K = TypeVar("K", bound=Hashable)


class ScopedBuilder:
    """Sets which operators act on the watermark, and how long a value counts."""

    _scope = EVERYWHERE

    def deliver_to(self, *uids: str) -> Self:
        """Address the watermark to operators: only their functions receive it. Default: all that it reaches.

        Other operators between the emitter and these combine it and pass it on, even if it is declared to be ignored.
        Calls add up, also those of ``deliver_to_group``.

        Args:
            uids: Uids that the program sets on functions (``with_uid``). They are checked when the plan is built.

        Raises:
            WatermarkDeclarationError: There is none, or one is not a non-empty string.
        """
        self._scope = replace(self._scope, uids=WatermarkScope.checked_names(uids, self._scope.uids, "uid"))
        return self

    def deliver_to_group(self, *groups: str) -> Self:
        """Address the watermark to all operators of groups (``with_group``). See ``deliver_to``.

        Args:
            groups: The names of the groups.

        Raises:
            WatermarkDeclarationError: There is none, or one is not a non-empty string.
        """
        names = WatermarkScope.checked_names(groups, self._scope.groups, "group")
        self._scope = replace(self._scope, groups=names)
        return self

    def expire_after(self, duration: timedelta) -> Self:
        """Let the value of a channel count for a limited time. Default: until another value replaces it.

        The value is forgotten after ``duration`` of processing time in which the channel has not sent it, or another
        one, again.

        Args:
            duration: At least 1 ms.

        Raises:
            WatermarkDeclarationError: ``duration`` is not a ``timedelta``, or too small.
        """
        self._scope = replace(self._scope, expires_after_ms=WatermarkScope.checked_lifetime(duration))
        return self

    def per_key(self: Buildable[V], key_type: type[K]) -> PerKeyBuilder[V, K]:
        """Declare a watermark about one key. This is the last step before ``build``.

        It is emitted with a key, and handled by the next keyed functions in the partition of that key
        (``on_key_watermark``). The values of their channels are combined for each key, and kept with its state.

        Args:
            key_type: The type of the keys.

        Raises:
            WatermarkDeclarationError: ``key_type`` is not a type of hashable values.
        """
        return PerKeyBuilder(self, key_type)
