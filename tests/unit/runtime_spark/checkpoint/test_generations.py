"""The current generation of a checkpoint, whenever a driver dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.errors import ConfigurationError
from runtime_spark.checkpoint.generations import Generations, delete_generation, delete_other_generations

FILES = ("metadata", "offsets/0", "offsets/1", "state/0/0/1.delta", "dsv2/job/0.json", "dsv2/states/0.json")


class DeadError(Exception):
    """The driver has died."""


class Mortal(LocalFolder):
    """A folder whose driver dies before the deletion with the number ``left``. A tree is deleted file by file."""

    left = 10**6

    def delete(self, name: str) -> None:
        if Mortal.left == 0:
            raise DeadError
        Mortal.left -= 1
        super().delete(name)

    def remove(self, name: str) -> None:
        for file in sorted(Path(self.path, name).rglob("*"), reverse=True):
            if file.is_file():
                self.delete(str(file.relative_to(self.path)))
        if Path(self.path, name).is_file():
            self.delete(name)
        super().remove(name)

    def subfolder(self, name: str) -> Mortal:
        return Mortal(self.place(name))


def generation(root: LocalFolder, number: int, *, complete: bool, begun: bool = True) -> LocalFolder:
    folder = root.subfolder(f"generations/{number}") if number else root
    for name in FILES:
        if begun or not name.startswith("offsets"):
            folder.write(name, b"x")
    if complete:
        folder.write("commits/0", b"x")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Mortal:
    Mortal.left = 10**6
    return Mortal(str(tmp_path))


def test_last_complete_generation_is_current(root: Mortal) -> None:
    assert Generations(root).current.path == root.path
    assert Generations(root).begun is None
    generation(root, 0, complete=True)
    generation(root, 1, complete=False, begun=False)
    assert (Generations(root).current.path, Generations(root).begun) == (root.path, None)
    assert Generations(root).next.path == root.place("generations/1")
    first = generation(root, 1, complete=False)
    begun = Generations(root).begun
    assert begun is not None
    assert (Generations(root).current.path, begun.path) == (root.path, first.path)
    generation(root, 1, complete=True)
    assert (Generations(root).current.path, Generations(root).begun) == (first.path, None)
    assert Generations(root).next.path == root.place("generations/2")


def test_deletion_keeps_the_lease_and_files_of_others(root: Mortal) -> None:
    generation(root, 0, complete=True)
    root.write("dsv2/drivers/1-a.json", b"x")
    root.write("notes.txt", b"mine")
    second = generation(root, 2, complete=True)
    second.write("savepoint/savepoint.json", b"x")
    generation(root, 1, complete=True)
    delete_other_generations(root, second)
    assert {*root.sizes()} == {"dsv2", "generations", "notes.txt"}
    assert ({*root.sizes("dsv2")}, {*root.sizes("generations")}) == ({"drivers"}, {"2"})
    assert "savepoint" not in second.sizes()
    assert "commits" in second.sizes()


def test_driver_that_dies_while_it_deletes_the_generation_before(root: Mortal) -> None:
    generation(root, 0, complete=True)
    kept = generation(root, 1, complete=True)
    for _ in FILES:
        Mortal.left = 1
        with pytest.raises(DeadError):
            delete_other_generations(root, kept)
        assert Generations(root).current.path == kept.path
    Mortal.left = 10**6
    delete_other_generations(root, kept)
    assert {*root.sizes()} == {"dsv2", "generations"}


def test_driver_that_dies_while_it_discards_a_generation(root: Mortal) -> None:
    generation(root, 0, complete=True)
    for died in range(1, len(FILES)):
        discarded = generation(root, 1, complete=False)
        Mortal.left = died
        with pytest.raises(DeadError):
            delete_generation(root, discarded)
        assert Generations(root).current.path == root.path
        begun = Generations(root).begun
        assert begun is None or begun.read("dsv2/job/0.json") is not None, "a start can still read it"
    Mortal.left = 10**6
    delete_generation(root, discarded)
    assert root.numbers("generations") == []


def test_savepoint_given_as_checkpoint_is_refused(root: Mortal) -> None:
    root.write("savepoint.json", b"{}")
    with pytest.raises(ConfigurationError, match="is a savepoint, not a checkpoint"):
        Generations(root)
