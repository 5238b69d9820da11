"""Functions that run in a fork of this process, which they may kill."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable


def in_a_fork(call: Callable[[], object]) -> int:
    """Call a function in a fork, and return how that has ended."""
    child = os.fork()
    if child == 0:
        try:
            call()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
