"""State of uncommitted micro-batches is deleted, and no other file."""

from __future__ import annotations

from pathlib import Path

from dsv2.base.folders import LocalFolder
from runtime_spark.checkpoint.uncommitted_state import discard_uncommitted_state

COMMITTED = (
    "state/0/0/2.delta", "state/0/0/3.delta", "state/0/0/3.snapshot", "state/0/0/.3.delta.crc", "state/0/1/3.changelog",
    "state/0/1/2.zip", "state/0/1/SSTs/000008-4f.sst", "state/0/1/_metadata/schema", "state/0/_metadata/v2/7",
    "offsets/3", "commits/2", "dsv2/states/4.json",
)  # fmt: skip
LEFT = (
    "state/0/0/4.delta", "state/0/0/.4.delta.crc", "state/0/0/12.snapshot", "state/0/1/4.changelog", "state/0/1/4.zip",
    "state/0/1/4_1d2c.changelog", "state/0/1/.4.changelog.ab.TID7.tmp", "state/10/11/4.delta",
)  # fmt: skip


def test_only_state_of_later_micro_batches_is_deleted(tmp_path: Path) -> None:
    checkpoint = LocalFolder(str(tmp_path))
    for name in (*COMMITTED, *LEFT):
        checkpoint.write(name, b"x")
    discard_uncommitted_state(checkpoint, checkpoint.tree("state"), 3)
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == sorted(
        COMMITTED
    )
