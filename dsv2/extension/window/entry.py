"""The keys under which windows store their data in the entry of a key."""

from __future__ import annotations

from typing import Final

# Strings are names of user states; numbers from 0 are used by the runtime. All but COUNT hold a dict by window start.
CONTENTS: Final = -1
"""The content of each window of the key, except for tumbling and sliding windows, which are stored in panes."""
ENDS: Final = -2
"""The end of each window, for sessions only."""
EARLY: Final = -3
"""The next early firing of each window."""
COUNT: Final = -4
"""The number of records of the key so far, for count windows."""

STATES: Final = -5
"""The states of each window, by name."""
TRIGGER: Final = -6
"""The state and the timers of the trigger of each window."""
TIMES: Final = -7
"""The timestamp of the results of each window, if it is that of a record."""
RECORDS: Final = -8
"""The records of the key that may be in windows to come, with their times and inputs, for windows of records only."""
