"""Checks of ``./run wheel``."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from tests import ROOT
from tests.rehearsal import rehearse, version_of, with_version
from tests.wheel import Environment, WheelError, build_wheel, check_contents

STATIC = ROOT / "dsv2/views/dashboard/static"
GOOD = (
    "dsv2/__init__.py",
    "dsv2/py.typed",
    "pytest_dsv2.py",
    "runtime_spark/py.typed",
    "dsv2-0.1.0.dist-info/METADATA",
    "dsv2-0.1.0.dist-info/licenses/LICENSE",
    "dsv2-0.1.0.dist-info/licenses/NOTICE",
    *(f"dsv2/views/dashboard/static/{file.name}" for file in sorted(STATIC.iterdir())),
)


def wheel_of(folder: Path, *names: str) -> Path:
    file = folder / "dsv2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return file


def test_complete_wheel(tmp_path: Path) -> None:
    check_contents(wheel_of(tmp_path, *GOOD))


@pytest.mark.parametrize("lacking", GOOD[1:])
def test_missing_file(lacking: str, tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=lacking.rpartition("/")[2]):
        check_contents(wheel_of(tmp_path, *(name for name in (*GOOD, "runtime_spark/a.py") if name != lacking)))


def test_unexpected_package(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r"installs \['dsv2', 'pytest_dsv2.py', 'runtime_spark', 'tests'\]"):
        check_contents(wheel_of(tmp_path, *GOOD, "tests/conftest.py"))


def test_failing_program_is_an_error_with_its_output(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    with pytest.raises(WheelError, match=r"failed with exit code 3:\nsome output"):
        Environment(tmp_path).python("-c", "print('some output'); exit(3)", cwd=tmp_path)


def test_copy_with_another_version(tmp_path: Path) -> None:
    wheel = tmp_path / "dsv2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("dsv2/version.py", '__version__ = "0.1.0"')
        archive.writestr("dsv2/other.py", "0.1.0")
        archive.writestr("dsv2-0.1.0.dist-info/METADATA", "Version: 0.1.0")
    copy = with_version(wheel, "0.0.1", tmp_path / "previous")
    assert (copy.name, version_of(copy)) == ("dsv2-0.0.1-py3-none-any.whl", "0.0.1")
    with zipfile.ZipFile(copy) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == {
            "dsv2/version.py": '__version__ = "0.0.1"',
            "dsv2/other.py": "0.1.0",
            "dsv2-0.0.1.dist-info/METADATA": "Version: 0.0.1",
        }


@pytest.mark.slow
@pytest.mark.nightly  # downloads packages
def test_upgrade_of_a_job(tmp_path: Path) -> None:
    rehearse(build_wheel(tmp_path), None, tmp_path)
