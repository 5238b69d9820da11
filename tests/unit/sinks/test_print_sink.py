"""The print sink: jobs of one program print at the same time."""

from __future__ import annotations

import sys
from threading import Thread

import pytest

from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import PrintSink


def print_records(sink: PrintSink[int], *records: int) -> None:
    sink.write_batch([RecordBatch(list(records))], 0)


class Console:
    """Standard output. While the first text is written, a second job prints."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.second = Thread(target=print_records, args=(PrintSink[int]("second"), 3))

    def write(self, text: str) -> None:
        if not self.calls:
            self.second.start()
            self.second.join(timeout=0.05)
        self.calls.append(text)

    def flush(self) -> None:
        self.calls.append("flush")


def test_jobs_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console()
    monkeypatch.setattr(sys, "stdout", console)
    print_records(PrintSink[int]("first"), 1, 2)
    console.second.join()
    assert console.calls == ["first> 1\nfirst> 2\n", "flush", "second> 3\n", "flush"]
