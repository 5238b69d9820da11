"""The lease of a checkpoint, which allows one driver at a time, with a manual clock."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsv2 import JobError
from dsv2.base.folders import Folder, LocalFolder
from dsv2.errors import ConfigurationError
from runtime_spark.checkpoint import lease as lease_module
from runtime_spark.checkpoint.lease import BEAT_SECONDS, STALE_SECONDS, VALID_SECONDS, Lease
from runtime_spark.platform.driver_processes import describe_driver, is_gone

ELSEWHERE: dict[str, Any] = {"host": "another-host", "processes": [[7, 1]]}


class Time:
    """A manual clock. Sleeping advances it, and ``meanwhile`` may run something."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


class Unknown(dict[str, Lease]):
    """Treats all other runs as runs of other processes."""

    def get(self, run: object, default: object = None) -> None:  # type: ignore[override]
        return None


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(autouse=True)
def others_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "_held", Unknown())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return LocalFolder(str(tmp_path))


def lease(folder: Folder, run: str, time: Time, driver: dict[str, Any] = ELSEWHERE) -> Lease:
    return Lease(folder, run, driver, time, time.sleep)


def test_second_driver_is_refused_while_the_first_runs(folder: Folder, time: Time) -> None:
    first, second = lease(folder, "a", time), lease(folder, "b", time)
    first.acquire()
    time.meanwhile = first._beat
    with pytest.raises(ConfigurationError) as refused:
        second.acquire()
    text = str(refused.value)
    assert text.startswith(f"Another driver runs a job with the checkpoint {folder.path}: process 7 on another-host (")
    assert "Only one job at a time can use a checkpoint. Stop that job first" in text
    first.check()


def test_released_lease_is_free_at_once(folder: Folder, time: Time) -> None:
    first, second = lease(folder, "a", time), lease(folder, "b", time)
    first.acquire()
    first.release()
    first.release()
    second.acquire()
    assert time.now == 1000
    assert {name.partition(".")[0] for name in folder.sizes("dsv2/drivers")} == {"2-b"}


def test_dead_driver_on_another_machine_expires(folder: Folder, time: Time) -> None:
    lease(folder, "a", time).acquire()
    lease(folder, "b", time).acquire()
    assert STALE_SECONDS <= time.now - 1000 <= STALE_SECONDS + 2


def test_suspended_driver_loses_its_lease(folder: Folder, time: Time) -> None:
    first, second = lease(folder, "a", time), lease(folder, "b", time)
    first.acquire()
    second.acquire()  # the first one did nothing in the meantime
    with pytest.raises(JobError, match="has lost its lease on the checkpoint"):
        first.check()
    second.check()
    first._beat()
    time.now += VALID_SECONDS - 1
    second.check()
    first.release()
    second.check()


def test_driver_without_its_checkpoint_stops_in_time(
    folder: Folder, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str, data: bytes) -> None:
        raise OSError("no network")

    own = lease(folder, "a", time)
    own.acquire()
    monkeypatch.setattr(folder, "write", fails)
    time.now += VALID_SECONDS - 1
    own._beat()
    own.check()
    time.now += 1
    with pytest.raises(JobError, match="could not renew the lease"):
        own.check()
    monkeypatch.undo()
    own.check()  # there is no other driver, so it continues


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"processes": 7}', '{"processes": [[7]]}', '{"processes": []}'])
def test_incomplete_claim_is_waited_for(folder: Folder, time: Time, text: str) -> None:
    lease(folder, "a", time).acquire()
    folder.write("dsv2/drivers/1-a.json", text.encode())
    lease(folder, "b", time).acquire()
    assert time.now >= 1000 + STALE_SECONDS


def test_drivers_on_this_machine_are_checked(folder: Folder, time: Time) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    first = lease(folder, "a", time, describe_driver([other.pid]))
    first.acquire()
    time.meanwhile = first._beat
    with pytest.raises(ConfigurationError, match=f"process {other.pid} on "):
        lease(folder, "b", time).acquire()
    before = time.now

    def kill() -> None:
        other.kill()
        other.wait()

    time.meanwhile = kill
    lease(folder, "b", time).acquire()
    assert time.now < before + 2


def test_nothing_is_certain_where_processes_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """On other systems than Linux."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    described = describe_driver([gone.pid])
    gone.wait()
    assert is_gone(described)

    def no_such_file(path: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", no_such_file)
    assert not is_gone(described)
    assert not is_gone(describe_driver([gone.pid]))


def test_driver_whose_jvm_still_runs_is_waited_for(folder: Folder, time: Time) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lease(folder, "a", time, describe_driver([other.pid, os.getpid()])).acquire()
    other.communicate(b"\n")
    lease(folder, "b", time).acquire()
    assert time.now >= 1000 + STALE_SECONDS


def test_copied_lease_of_a_running_driver_expires(folder: Folder, time: Time) -> None:
    first = lease(folder, "a", time, describe_driver([os.getpid()]))
    first.acquire()
    copy = LocalFolder(shutil.copytree(folder.path, f"{folder.path}-copy"))
    time.meanwhile = first._beat
    lease(copy, "b", time).acquire()
    first.check()


def test_reused_process_id_is_not_the_old_process() -> None:
    driver = describe_driver([os.getpid()])
    ((number, started),) = driver["processes"]
    before = {**driver, "processes": [[number, started - 1]]}
    assert [is_gone(each) for each in (driver, before, {**before, "boot": "of another boot"}, {})] == [
        False, True, False, False,
    ]  # fmt: skip


def test_finished_job_of_this_process_frees_its_lease(
    folder: Folder, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "_held", {})
    first = lease(folder, "a", time, describe_driver([os.getpid()]))
    first.acquire()
    with pytest.raises(ConfigurationError):
        lease(folder, "b", time).acquire()
    first._is_over = lambda: True
    lease(folder, "b", time).acquire()
    assert time.now == 1000


# --- Drivers at any pace ----------------------------------------------------------------------------------------------


class Turns(Folder):
    """A folder in memory. Each call of an actor waits for its turn."""

    def __init__(self, actor: Actor, files: dict[str, bytes]) -> None:
        super().__init__("mem")
        self._actor = actor
        self._files = files

    def sizes(self, name: str = "") -> dict[str, int]:
        self._actor.wait()
        return {path.rpartition("/")[2]: len(data) for path, data in self._files.items() if path.startswith(name)}

    def links(self, name: str = "") -> list[str]:
        raise NotImplementedError

    def read(self, name: str) -> bytes | None:
        self._actor.wait()
        return self._files.get(name)

    def write(self, name: str, data: bytes) -> None:
        self._actor.wait()
        self._files[name] = data

    def delete(self, name: str) -> None:
        self._actor.wait()
        self._files.pop(name, None)

    def create(self, name: str, data: bytes) -> bool:
        raise NotImplementedError

    def move(self, name: str, new: str) -> bool:
        raise NotImplementedError

    def tree(self, name: str) -> dict[str, int]:
        raise NotImplementedError

    def remove(self, name: str) -> None:
        raise NotImplementedError

    def subfolder(self, name: str) -> Folder:
        raise NotImplementedError


class Actor:
    """A driver that starts again and again, in a thread that runs during its turns only, up to its next call."""

    def __init__(self, name: str, time: Time, files: dict[str, bytes]) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self.name = name
        self._time = time
        self._folder = Turns(self, files)
        self._steps = self._live()
        self.lease: Lease | None = None
        self.acquired = False
        self.over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def turn(self) -> None:
        self._go.release()
        self._done.acquire()

    def end(self) -> None:
        self.over = True
        while self._thread.is_alive():
            self._go.release()
            self._thread.join(0.01)

    def wait(self) -> None:
        if not self.over:
            self._done.release()
            self._go.acquire()

    @property
    def may_write(self) -> bool:
        own = self.lease
        return own is not None and self.acquired and not own._lost and self._time.now < own._valid_until

    def _run(self) -> None:
        self._go.acquire()
        for _ in self._steps:
            if self.over:
                return
        self._done.release()

    def _live(self) -> Iterator[None]:
        for start in range(10_000):
            self.acquired = False
            self.lease = Lease(self._folder, f"{self.name}{start}", ELSEWHERE, self._time, self._sleep)
            try:
                self.lease.acquire()
            except ConfigurationError:
                self.wait()
                yield
                continue
            self.acquired = True
            for _ in range(6):
                self.wait()
                self.lease._beat()
                yield
            self.acquired = False
            if start % 2:
                self.lease.release()
            yield

    def _sleep(self, seconds: float) -> None:
        until = self._time.now + seconds
        while self._time.now < until and not self.over:
            self.wait()
        self._time.now += seconds if self.over else 0


@pytest.mark.parametrize("seed", range(25))
def test_two_of_three_drivers_never_write_at_once(seed: int) -> None:
    """Each turn is one file-system call of one driver. Some drivers are fast, some are suspended for long."""
    time, files, dice = Time(), dict[str, bytes](), random.Random(seed)
    actors = [Actor(name, time, files) for name in "abc"]
    wrote: set[str] = set()
    try:
        for _ in range(400):
            actor = dice.choice(actors)
            for _ in range(dice.choice([1, 1, 2, 3, 5, 30])):
                time.now += dice.choice([0.0, 0.0, 0.0, 0.3, 1.0])
                actor.turn()
                writers = [each.name for each in actors if each.may_write]
                assert len(writers) <= 1
                wrote.update(writers)
            time.now += dice.choice([0.0, 0.0, 0.0, 1.0, BEAT_SECONDS, 13.0, STALE_SECONDS])
    finally:
        for actor in actors:
            actor.end()
    assert wrote == {*"abc"}


def test_released_lease_is_not_renewed(folder: Folder, time: Time) -> None:
    own = lease(folder, "a", time)
    own.acquire()
    own.release()
    before = folder.sizes("dsv2/drivers")
    own._beat()  # which its thread was about to do
    assert folder.sizes("dsv2/drivers") == before


def test_process_that_takes_over_is_waited_for(folder: Folder) -> None:
    """The process that acquired the lease may end."""
    first = subprocess.Popen([sys.executable, "-c", ""])
    client = Lease(folder, "a", describe_driver([first.pid]))
    client.acquire()
    first.wait()
    server = Lease.taken_over(folder, client.claim, describe_driver([os.getpid()]) | {"stop": "/c/stop"})
    client.let_go()
    waiting = Time()
    waiting.meanwhile = server._beat
    with pytest.raises(ConfigurationError, match=f"process {os.getpid()} on .*create the file /c/stop to stop it"):
        lease(folder, "b", waiting).acquire()
    server.check()
    server.release()
    lease(folder, "b", waiting).acquire()


def test_lost_lease_is_not_taken_over(folder: Folder, time: Time) -> None:
    client = lease(folder, "a", time)
    client.acquire()
    lease(folder, "b", time).acquire()
    with pytest.raises(JobError, match="This driver has lost its lease"):
        Lease.taken_over(folder, client.claim, ELSEWHERE)
    assert [name for name in folder.sizes("dsv2/drivers") if name.endswith(".json")] == ["2-b.json"]
