"""What windows keep in the entry of a key, and under which names."""

from __future__ import annotations

from typing import Final

__all__ = ("CONTENTS", "COUNT", "EARLY", "ENDS", "STATES")

# Strings are the names of the user's states, and numbers from 0 the runtime's own. All but COUNT map a window to
# something; windows are known by their start.
CONTENTS: Final = -1
"""What it holds. Every window of the key is in here, but for those that end for all keys at once: these have panes."""
ENDS: Final = -2
"""Where it ends: for sessions only, others know."""
EARLY: Final = -3
"""When it fires before its time."""
COUNT: Final = -4
"""Records of the key so far, for count windows."""

STATES: Final = -5
"""Its states, by name."""
