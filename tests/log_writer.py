"""Random transactions on the log of a local checkpoint."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dsv2.local import page_log
from dsv2.local.page_index import MapName
from dsv2.local.page_log import PageLog

MAPS = [MapName("a", 0, "keys"), MapName("a", 1, "keys"), MapName("b", 0, "pane/7")]
PAGES = 60
Content = dict[tuple[MapName, int], bytes]


def make_limits_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_log, "_LEAST_SEGMENT", 20_000)
    monkeypatch.setattr(page_log, "_SPILLED_BYTES", 6_000)
    monkeypatch.setattr(page_log, "_LEAST_CLEANED", 1_000)


def opened(folder: Path, *, writes: bool = True, durable: bool = True) -> PageLog:
    log = PageLog(str(folder), durable=durable)
    log.recover(writes=writes)
    return log


def content_of(log: PageLog) -> Content:
    pages = ((name, number, log.get(name, number)) for name in MAPS for number in range(PAGES))
    return {(name, number): page for name, number, page in pages if page is not None}


class Writer:
    """Random transactions on a log, and the content that it should have."""

    def __init__(self, folder: Path, seed: int, *, durable: bool = True) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.log = opened(folder, durable=durable)
        self.committed: Content = {}
        self.changed: Content = {}
        self.number = 0

    def change(self, most: int = 30) -> None:
        choice = self.random
        if choice.random() < 0.03:
            self.log.replace_all()
            self.changed = {}
        for _ in range(choice.randrange(most)):
            place = choice.choice(MAPS), choice.randrange(PAGES)
            if place in self.changed and choice.random() < 0.2:
                self.log.remove(*place)
                del self.changed[place]
            else:
                page = choice.randbytes(choice.choice([1, 90, 700]))
                self.log.put(*place, page)
                self.changed[place] = page

    def commit(self) -> None:
        self.number += 1
        self.log.commit({"number": b"%d" % self.number}, [b"other", b"%d" % self.number])
        self.committed = dict(self.changed)

    def reopen(self) -> None:
        self.log.close()
        self.log = opened(self.folder)
        self.changed = dict(self.committed)

    def check(self) -> None:
        assert content_of(self.log) == self.changed
        assert self.log.notes == ({"number": b"%d" % self.number} if self.number else {})
