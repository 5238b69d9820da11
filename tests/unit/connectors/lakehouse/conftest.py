"""Tables of both formats in a temporary folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lakehouse_tables import FORMATS, DeltaOnDisk, IcebergOnDisk, TableOnDisk


@pytest.fixture(params=list(FORMATS))
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> TableOnDisk:
    """A table of each format."""
    pytest.importorskip(request.param)
    return FORMATS[request.param](tmp_path)


@pytest.fixture
def delta(tmp_path: Path) -> DeltaOnDisk:
    """A Delta table."""
    pytest.importorskip("deltalake")
    return DeltaOnDisk(tmp_path)


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergOnDisk:
    """An Iceberg table."""
    pytest.importorskip("pyiceberg")
    return IcebergOnDisk(tmp_path)
