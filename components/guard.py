"""Runs a command until the parent process exits: ``python -m components.guard SIGNAL USER COMMAND …``.

Standard input is a pipe from the parent. When it closes, even because the parent was killed, the command receives
``SIGNAL``, and after a timeout SIGKILL. A byte on the pipe means SIGKILL immediately. ``USER`` is the user of the
command; empty means the current user. On Linux, the command also dies with this process, and this process ends when
all processes that the command has started have ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

_PATIENCE_SECONDS = 5.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(stop: str, user: str, command: list[str]) -> int:
    """Run ``command`` and return its exit status."""
    for name in (signal.SIGINT, signal.SIGTERM):  # only the parent stops the command
        signal.signal(name, lambda *_: None)  # SIG_IGN would be inherited by the command
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans become child processes of this process
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        user=user or None,
        group=user or None,
        extra_groups=[] if user else None,
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,
    )
    threading.Thread(target=_end_with_input, args=(child, signal.Signals[stop]), daemon=True).start()
    status = child.wait()
    _kill_group(child)  # its remaining child processes
    _end_orphans()
    return status


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_input(child: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        child.send_signal(stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE_SECONDS)
    _kill_group(child)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _end_orphans() -> None:
    """Kill what remains, also in other sessions, and wait for its end: PostgreSQL only starts again after that."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for listed in Path("/proc/self/task").glob("*/children"):
                for pid in map(int, listed.read_text(encoding="utf-8").split()):
                    os.kill(pid, signal.SIGKILL)
            os.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
