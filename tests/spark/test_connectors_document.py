"""The program in ``docs/connectors.md`` runs unchanged except for the server addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from components.python_path import python_path
from tests import ROOT
from tests.documents import documented_output, program_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def test_program_prints_what_is_shown(
    kafka_broker: KafkaBroker, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    program = program_of(ROOT / "docs" / "connectors.md")
    for there, here in (
        ('"127.0.0.1:9092"', f'"{kafka_broker.bootstrap_servers}"'),
        ('"host=127.0.0.1 port=5432 user=postgres dbname=postgres"', f'"{postgres_server.conninfo}"'),
    ):
        assert program.count(there) == 1
        program = program.replace(there, here)
    file = tmp_path / "connectors.py"
    file.write_text(program)
    environment = {**os.environ, "PYTHONPATH": python_path(), "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(
        [sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=850, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == documented_output(program)
