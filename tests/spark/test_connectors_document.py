"""The program in ``docs/connectors.md``: it runs as it stands, but for where the servers are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from tests.documents import ROOT, program_of, said_by

pytestmark = [pytest.mark.spark]


def test_the_program_runs_and_prints_what_is_said(
    own_kafka_broker: KafkaBroker, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    program = program_of(ROOT / "docs" / "connectors.md")
    for there, here in (
        ('"127.0.0.1:9092"', f'"{own_kafka_broker.bootstrap_servers}"'),
        ('"host=127.0.0.1 port=5432 user=postgres dbname=postgres"', f'"{postgres_server.conninfo}"'),
    ):
        assert program.count(there) == 1
        program = program.replace(there, here)
    file = tmp_path / "connectors.py"
    file.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    run = subprocess.run(
        [sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == said_by(program)
