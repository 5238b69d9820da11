"""Runs a command and ends it when whoever started it is gone: ``python -m components.guard SIGNAL USER COMMAND …``.

The starter holds the other end of this process's standard input. When that closes, even because the starter was
killed, the command gets ``SIGNAL``, and SIGKILL if that does not help in time. A byte that comes in means SIGKILL at
once. ``USER`` is who runs the command; empty for whoever runs this. Where the system can do it (Linux), the command
dies with this process, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

_PATIENCE_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


def main(stop: str, user: str, command: list[str]) -> int:
    """Run ``command``; returns its exit status."""
    for name in (signal.SIGINT, signal.SIGTERM):  # the starter decides what ends
        signal.signal(name, lambda *_: None)  # to ignore them would make the command ignore them as well
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
    _kill_group(child)  # what it has left behind
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
