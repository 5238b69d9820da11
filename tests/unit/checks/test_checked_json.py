"""JSON files with a checksum: every changed byte is detected."""

from __future__ import annotations

import json

import pytest

from dsv2.checks.json_documents import from_json, to_json

ENTRY = {"first_batch": 17, "runs": ["b1b11630", "é"], "written": {"sum": [3, None]}, "share": 0.25}


def test_entry_survives_a_round_trip() -> None:
    assert from_json(to_json(ENTRY)) == ENTRY
    assert json.loads(to_json(ENTRY)).items() >= ENTRY.items()  # readable for people


def test_hand_written_file_needs_no_checksum() -> None:
    assert from_json(b'{"first_batch": 0, "runs": []}') == {"first_batch": 0, "runs": []}


def test_every_changed_bit_is_detected() -> None:
    data = to_json(ENTRY)
    for place in range(len(data)):
        for bit in range(8):
            changed = bytes((*data[:place], data[place] ^ 1 << bit, *data[place + 1 :]))
            try:
                read = from_json(changed)
            except ValueError:
                continue
            # Only the name of the checksum may change undetected: it becomes one more entry.
            assert read.items() >= ENTRY.items(), changed


@pytest.mark.parametrize("data", [None, b"", b"{", b"[]", b"7", b'"x"', b'{"runs": [], "crc32": 1}'])
def test_invalid_entry_is_refused(data: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_json(data)
