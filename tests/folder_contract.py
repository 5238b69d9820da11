"""The contract of every kind of ``Folder``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from dsv2.base.folders import Folder

_NAMES = ("plain", "with space", "100%20", "späti", "a=1")


def check_folder(folder: Folder, *, writers: int = 4) -> None:
    """Check a folder that does not exist yet. ``writers``: So many create the same file at the same time."""
    _check_missing(folder)
    for name in _NAMES:
        _check_file(folder, f"{name}/{name}")
    assert set(folder.sizes()) == set(_NAMES)
    _check_moves(folder)
    _check_creation(folder, writers)
    _check_large(folder)
    folder.remove("")
    assert folder.sizes() == {}


def _check_missing(folder: Folder) -> None:
    assert folder.sizes() == {}
    assert folder.sizes("nothing") == {}
    assert folder.links() == []
    assert folder.read("nothing") is None
    assert folder.tree("nothing") == {}
    assert folder.numbers("nothing") == []
    folder.delete("nothing")
    folder.remove("nothing")
    assert not folder.move("nothing", "something")


def _check_file(folder: Folder, name: str) -> None:
    folder.write(name, b"one")
    folder.write(name, b"second")
    assert folder.read(name) == b"second"
    outer, _, inner = name.partition("/")
    assert folder.sizes(outer) == {inner: 6}
    assert folder.subfolder(outer).read(inner) == b"second"
    assert folder.tree("")[name] == 6
    folder.write(f"{outer}/7", b"")
    assert folder.numbers(outer) == [7]
    folder.delete(f"{outer}/7")
    assert folder.read(f"{outer}/7") is None


def _check_moves(folder: Folder) -> None:
    folder.write("from/a", b"moved")
    assert folder.move("from/a", "to/deep/b")
    assert (folder.read("from/a"), folder.read("to/deep/b")) == (None, b"moved")
    assert not folder.move("from/a", "to/deep/b")
    folder.remove("to")
    assert folder.tree("to") == {}


def _check_creation(folder: Folder, count: int) -> None:
    assert folder.create("log/1", b"first")
    assert not folder.create("log/1", b"another")
    assert folder.read("log/1") == b"first"
    writers = [f"writer {number}".encode() for number in range(count)]
    with ThreadPoolExecutor(len(writers)) as threads:
        won = list(threads.map(lambda data: folder.create("log/2", data), writers))
    assert won.count(True) == 1
    assert folder.read("log/2") == writers[won.index(True)]
    assert folder.numbers("log") == [1, 2]


def _check_large(folder: Folder) -> None:
    data = bytes(range(256)) * 40_000
    folder.write("large", data)
    assert folder.read("large") == data
