"""One driver at a time writes to a checkpoint.

A driver that begins writes a claim with the next number into ``dsv2/drivers``, and looks whether another one has done
the same: each of two sees the other's claim, or comes so late that the first one is done with looking. So file systems
need neither locks nor a rename that fails, only that what was written can be listed at once. The claim with the highest
number holds. Beside it lies a beat, which its driver changes every few seconds and removes at its end.

A driver counts on its claim only for a time after it has changed its beat and seen that no claim is higher. Others wait
for longer than that before they take a beat that does not change for that of a dead driver. So one that was suspended,
or cut off from its checkpoint, finds its time over, and stops before it writes.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from dsv2.errors import ConfigurationError, JobError
from runtime_spark.driver_processes import is_gone
from runtime_spark.folders import Folder

__all__ = ("BEAT_SECONDS", "STALE_SECONDS", "VALID_SECONDS", "Lease", "seconds_since_boot")

BEAT_SECONDS = 5.0
VALID_SECONDS = 15.0
STALE_SECONDS = 20.0
_LOOK_SECONDS = 1.0
_DRIVERS = "dsv2/drivers"

_held: dict[str, Lease] = {}  # of this process, by run


def seconds_since_boot() -> float:
    """A clock that also goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class _Claim(NamedTuple):
    number: int
    run_id: str

    @property
    def name(self) -> str:
        return f"{_DRIVERS}/{self.number}-{self.run_id}"

    @property
    def content(self) -> str:
        return f"{self.name}.json"

    @property
    def beat(self) -> str:
        return f"{self.name}.beat"


class Lease:
    """The right of the run ``run_id`` to write to ``checkpoint``."""

    def __init__(
        self,
        checkpoint: Folder,
        run_id: str,
        driver: dict[str, Any],
        clock: Callable[[], float] = seconds_since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``driver``: as ``describe_driver`` gives it. ``clock``: in seconds, from any beginning."""
        self._checkpoint = checkpoint
        self._driver = driver
        self._clock = clock
        self._sleep = sleep
        self._claim = _Claim(0, run_id)
        self._beats = 0
        self._valid_until = 0.0
        self._lost = False
        self._is_over: Callable[[], bool] = lambda: False
        self._ended = threading.Event()
        self._beating = threading.Lock()

    def acquire(self) -> None:
        """Become the one who writes. Raises ``ConfigurationError`` if another driver does.

        If it cannot be known whether the last one runs, this takes up to ``STALE_SECONDS``.
        """
        before = self._claims()
        seen = {claim: self._wait_for_end(claim) for claim in before}
        self._claim = _Claim(1 + max((claim.number for claim in before), default=0), self._claim.run_id)
        begin = self._clock()
        self._write_beat()
        self._checkpoint.write(self._claim.content, json.dumps(self._driver).encode())
        others = [claim for claim in self._claims() if claim != self._claim]
        rivals = [claim for claim in others if claim not in seen or self._has_moved(claim, seen[claim])]
        if rivals:
            self._checkpoint.delete(self._claim.content)
            self._checkpoint.delete(self._claim.beat)
            raise self._refusal(rivals[0])
        self._valid_until = begin + VALID_SECONDS
        for claim in others:
            self._checkpoint.delete(claim.content)
            self._checkpoint.delete(claim.beat)
        _held[self._claim.run_id] = self

    def keep(self, is_over: Callable[[], bool]) -> None:
        """Keep the lease, in a thread, until ``release`` is called or the job ``is_over``."""
        self._is_over = is_over
        threading.Thread(target=self._keep, name=f"dsv2-lease-{self._claim.run_id}", daemon=True).start()

    def check(self) -> None:
        """Call it before anything is written. Raises ``JobError`` if another driver may write."""
        if not self._lost and self._clock() < self._valid_until:
            return
        self._beat()
        if self._lost or self._clock() >= self._valid_until:
            raise JobError(
                f"This driver has lost its lease of the checkpoint {self._checkpoint.path}: another driver has gone on "
                f"from there, or for {VALID_SECONDS:.0f} s this one could not say that it runs. It stops before it "
                f"writes."
            )

    def release(self) -> None:
        """The job is over: the next driver need not wait. May be called again."""
        self._ended.set()
        if _held.pop(self._claim.run_id, None) is not None:
            with self._beating, contextlib.suppress(Exception):  # then the next driver waits for a while
                self._checkpoint.delete(self._claim.beat)

    def _keep(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            if self._is_over():
                self.release()
            else:
                self._beat()

    def _beat(self) -> None:
        with self._beating:
            if self._ended.is_set():
                return
            begin = self._clock()
            try:
                self._write_beat()
                highest = max(self._claims())
            except Exception:  # the file system does not answer: time runs on, and check() says so
                return
            if highest == self._claim:
                self._valid_until = begin + VALID_SECONDS
            else:
                self._lost = True

    def _write_beat(self) -> None:
        self._beats += 1
        self._checkpoint.write(self._claim.beat, f"{self._claim.run_id} {self._beats}".encode())

    def _claims(self) -> list[_Claim]:
        claims = []
        for name in self._checkpoint.sizes(_DRIVERS):
            number, _, run_id = name.removesuffix(".json").partition("-")
            if name.endswith(".json") and number.isdigit():
                claims.append(_Claim(int(number), run_id))
        return claims

    def _wait_for_end(self, claim: _Claim) -> bytes | None:
        """The beat of ``claim``, whose driver does not run any more. Raises ``ConfigurationError`` if it does."""
        own = _held.get(claim.run_id)
        if own is not None and own._checkpoint.path == self._checkpoint.path:  # else this one is a copy
            if not own._is_over():
                raise self._refusal(claim)
            own.release()
        seen = self._checkpoint.read(claim.beat)
        end = self._clock() + STALE_SECONDS
        while seen is not None and self._clock() < end:
            if is_gone(self._description(claim)):
                return seen
            self._sleep(_LOOK_SECONDS)
            now = self._checkpoint.read(claim.beat)
            if now is not None and now != seen:
                raise self._refusal(claim)
            seen = now
        return seen

    def _has_moved(self, claim: _Claim, seen: bytes | None) -> bool:
        """Whether the driver of ``claim`` has come back."""
        return self._checkpoint.read(claim.beat) not in (seen, None)

    def _description(self, claim: _Claim) -> dict[str, Any]:
        """What its driver said of itself; nothing if that is damaged."""
        try:
            found = json.loads(self._checkpoint.read(claim.content) or b"")
            processes = [[int(number), int(started)] for number, started in found["processes"]]
        except (KeyError, TypeError, ValueError):
            return {}
        return {**found, "processes": processes} if processes else {}

    def _refusal(self, claim: _Claim) -> ConfigurationError:
        driver = self._description(claim)
        processes = driver.get("processes") or [["?"]]
        return ConfigurationError(
            f"Another driver runs a job with the checkpoint {self._checkpoint.path}: process {processes[0][0]} on "
            f"{driver.get('host', 'an unknown host')} (run {claim.run_id}). Only one at a time can go on from a "
            f"checkpoint: stop that job first, or give this one a checkpoint_location of its own."
        )
