"""The key that signs state: where it comes from, and that it is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2.errors import ConfigurationError
from runtime_spark import StateKey

SECRET = "0123456789abcdef" * 4


def test_file_and_variable_give_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setenv("KEY", SECRET)
    keys = {StateKey.from_file(file).value, StateKey.from_environment("KEY").value, StateKey(SECRET.encode()).value}
    assert len(keys) == 1
    assert StateKey((SECRET + "0").encode()).value not in keys


def test_missing_or_short_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KEY", raising=False)
    with pytest.raises(ConfigurationError, match=r"The environment variable KEY, which .*, is not set"):
        StateKey.from_environment("KEY")
    with pytest.raises(ConfigurationError, match=r"cannot be read from .*nowhere: No such file or directory"):
        StateKey.from_file(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="at least 32 bytes"):
        StateKey(b"short")


def test_key_is_not_shown() -> None:
    key = StateKey(SECRET.encode())
    assert SECRET[:8] not in f"{key!r} {key}"
    assert key.value.hex() not in f"{key!r}"
