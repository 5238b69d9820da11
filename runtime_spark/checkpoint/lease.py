"""Ensures that only one driver at a time writes to a checkpoint.

A starting driver writes a claim with the next number into ``dsv2/drivers``, then lists the claims. If two drivers start
together, at least one of them sees the claim of the other. The file system needs neither locks nor an exclusive rename,
only listings that include every completed write. The claim with the highest number holds. Next to the claim is a
heartbeat file, which the driver rewrites every few seconds and deletes when it ends.

A heartbeat makes the lease valid for ``VALID_SECONDS`` if no claim is higher. Other drivers wait longer than that,
``STALE_SECONDS``, before they consider the driver of an unchanged heartbeat dead. So the lease of a driver that was
suspended or cut off from its checkpoint has expired when it resumes, and it stops before it writes.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from dsv2.base.folders import Folder
from dsv2.errors import ConfigurationError, JobError
from runtime_spark.platform.driver_processes import is_gone

BEAT_SECONDS = 5.0
VALID_SECONDS = 15.0
STALE_SECONDS = 20.0
_POLL_SECONDS = 1.0
_DRIVERS = "dsv2/drivers"

_held: dict[str, Lease] = {}  # the leases of this process, by run id


def seconds_since_boot() -> float:
    """Return a monotonic time that includes the time during which the machine was suspended."""
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
    """The right of a run to write to a checkpoint.

    Args:
        checkpoint: The checkpoint.
        run_id: The run.
        driver: The result of ``describe_driver``.
        clock: Returns a time in seconds.
        sleep: Sleeps for a number of seconds.
    """

    def __init__(
        self,
        checkpoint: Folder,
        run_id: str,
        driver: dict[str, Any],
        clock: Callable[[], float] = seconds_since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
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
        """Acquire the lease. Takes up to ``STALE_SECONDS`` if it is unknown whether the last driver is still running.

        Raises:
            ConfigurationError: Another driver has the lease.
        """
        before = self._claims()
        seen = {claim: self._wait_for_end(claim, has_beat=has_beat) for claim, has_beat in before.items()}
        self._claim = _Claim(1 + max((claim.number for claim in before), default=0), self._claim.run_id)
        begin = self._clock()
        self._write_beat()
        self._checkpoint.write(self._claim.content, json.dumps(self._driver).encode())
        others = {claim: has_beat for claim, has_beat in self._claims().items() if claim != self._claim}
        rivals = [
            claim
            for claim, has_beat in others.items()
            if claim not in seen or (has_beat and self._has_moved(claim, seen[claim]))
        ]
        if rivals:
            self._checkpoint.delete(self._claim.content)
            self._checkpoint.delete(self._claim.beat)
            raise self._in_use(rivals[0])
        self._valid_until = begin + VALID_SECONDS
        for claim in others:
            self._checkpoint.delete(claim.content)
            self._checkpoint.delete(claim.beat)
        _held[self._claim.run_id] = self

    @property
    def claim(self) -> tuple[int, str]:
        """The claim of a lease that was acquired, for ``taken_over``."""
        return self._claim.number, self._claim.run_id

    @classmethod
    def taken_over(cls, checkpoint: Folder, claim: tuple[int, str], driver: dict[str, Any]) -> Lease:
        """Continue a lease in another process, which then holds it as well.

        Args:
            checkpoint: The checkpoint.
            claim: The claim of the lease.
            driver: The result of ``describe_driver`` for this process. Other drivers wait for its end.

        Raises:
            JobError: The lease is lost.
        """
        lease = cls(checkpoint, claim[1], driver)
        lease._claim = _Claim(*claim)
        lease.check()
        checkpoint.write(lease._claim.content, json.dumps(driver).encode())
        _held[lease._claim.run_id] = lease
        return lease

    def let_go(self) -> None:
        """Stop to renew the lease, because another process may hold it. Other drivers wait for that one."""
        self._ended.set()
        _held.pop(self._claim.run_id, None)

    def keep(self, is_over: Callable[[], bool]) -> None:
        """Renew the lease in a thread until ``release`` is called or the job ``is_over``."""
        self._is_over = is_over
        threading.Thread(target=self._keep, name=f"dsv2-lease-{self._claim.run_id}", daemon=True).start()

    def check(self) -> None:
        """Check that the lease is valid. Call this before each write.

        Raises:
            JobError: Another driver may write.
        """
        if not self._lost and self._clock() < self._valid_until:
            return
        self._beat()
        if self._lost or self._clock() >= self._valid_until:
            raise JobError(
                f"This driver has lost its lease on the checkpoint {self._checkpoint.path}: another driver has "
                f"continued from it, or this driver could not renew the lease for {VALID_SECONDS:.0f} s. It stops "
                f"before it writes."
            )

    def release(self) -> None:
        """Release the lease when the job is over, so that the next driver need not wait. May be called again."""
        self._ended.set()
        if _held.pop(self._claim.run_id, None) is not None:
            with self._beating, contextlib.suppress(Exception):  # on failure the next driver waits STALE_SECONDS
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
            except Exception:  # the file system does not respond; check() raises when the lease has expired
                return
            if highest == self._claim:
                self._valid_until = begin + VALID_SECONDS
            else:
                self._lost = True

    def _write_beat(self) -> None:
        self._beats += 1
        self._checkpoint.write(self._claim.beat, f"{self._claim.run_id} {self._beats}".encode())

    def _claims(self) -> dict[_Claim, bool]:
        """Return the claims, and whether each has a heartbeat."""
        names = self._checkpoint.sizes(_DRIVERS)
        claims = {}
        for name in names:
            number, _, run_id = name.removesuffix(".json").partition("-")
            if name.endswith(".json") and number.isdigit():
                claim = _Claim(int(number), run_id)
                claims[claim] = claim.beat.rpartition("/")[2] in names
        return claims

    def _wait_for_end(self, claim: _Claim, *, has_beat: bool) -> bytes | None:
        """Wait until the driver of ``claim`` has ended, and return its last heartbeat.

        Raises:
            ConfigurationError: The driver is still running.
        """
        own = _held.get(claim.run_id)
        if own is not None and own._checkpoint.path == self._checkpoint.path:  # otherwise this checkpoint is a copy
            if not own._is_over():
                raise self._in_use(claim)
            own.release()
        seen = self._checkpoint.read(claim.beat) if has_beat else None
        end = self._clock() + STALE_SECONDS
        while seen is not None and self._clock() < end:
            if is_gone(self._description(claim)):
                return seen
            self._sleep(_POLL_SECONDS)
            now = self._checkpoint.read(claim.beat)
            if now is not None and now != seen:
                raise self._in_use(claim)
            seen = now
        return seen

    def _has_moved(self, claim: _Claim, seen: bytes | None) -> bool:
        """Return whether the driver of ``claim`` has resumed its heartbeat."""
        return self._checkpoint.read(claim.beat) not in (seen, None)

    def _description(self, claim: _Claim) -> dict[str, Any]:
        """Return how the driver of ``claim`` described itself; empty if the description is damaged."""
        try:
            found = json.loads(self._checkpoint.read(claim.content) or b"")
            processes = [[int(number), int(started)] for number, started in found["processes"]]
        except (KeyError, TypeError, ValueError):
            return {}
        return {**found, "processes": processes} if processes else {}

    def _in_use(self, claim: _Claim) -> ConfigurationError:
        driver = self._description(claim)
        processes = driver.get("processes") or [["?"]]
        stop = driver.get("stop")
        request = "" if stop is None else f" If its client has ended, create the file {stop} to stop it."
        return ConfigurationError(
            f"Another driver runs a job with the checkpoint {self._checkpoint.path}: process {processes[0][0]} on "
            f"{driver.get('host', 'an unknown host')} (run {claim.run_id}). Only one job at a time can use a "
            f"checkpoint. Stop that job first, or give this one its own checkpoint_location.{request}"
        )
