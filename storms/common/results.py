"""Storage of individual results, so that a storm can be interrupted and resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Generic, TypeVar

__all__ = ("Result", "Results", "code_digest")

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """The result of one unit of a storm. The fields are JSON values. ``name``: unique within the storm."""

    name: str


ResultT = TypeVar("ResultT", bound=Result)


@cache
def code_digest() -> str:
    """A digest of the code under attack and of the storms."""
    digest = hashlib.sha256()
    for package in ("dsv2", "runtime_spark", "storms"):
        for file in sorted((_ROOT / package).rglob("*.py")):
            digest.update(str(file.relative_to(_ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


class Results(Generic[ResultT]):
    """The results of one storm in ``FOLDER/rows/STORM.json``, or only in memory if there is no folder.

    Results of a different version of the code are discarded.
    """

    def __init__(self, folder: Path | None, storm: str, kind: type[ResultT], *, again: bool = False) -> None:
        """``again``: discard all stored results."""
        self._file = None if folder is None else folder / "rows" / f"{storm}.json"
        self._by_name: dict[str, ResultT] = {}
        if self._file is not None and self._file.exists() and not again:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            if content["code"] == code_digest():
                for fields in content["results"]:
                    result = kind(**fields)
                    self._by_name[result.name] = result

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[ResultT]:
        return iter(self._by_name.values())

    def add(self, result: ResultT) -> None:
        """Store ``result``. It replaces an earlier one of the same name."""
        self._by_name[result.name] = result
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            content = {"code": code_digest(), "results": [asdict(kept) for kept in self]}
            partial = self._file.with_suffix(".new")
            partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            os.replace(partial, self._file)
