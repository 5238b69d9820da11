"""Checkpoints, savepoints, file sinks and dead letters on HDFS and in an object store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from components.hdfs import HdfsCluster
from components.s3 import S3Server, s3_jars
from components.server import MissingComponentError
from dsv2.connectors.files import read_files
from tests import ROOT
from tests.spark.remote_job import check, lives_of_a_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.nightly
def test_job_on_hdfs(spark: SparkSession, hdfs_cluster: HdfsCluster) -> None:
    check(lives_of_a_job(spark, f"{hdfs_cluster.uri}/jobs/{uuid4()}"))


@pytest.mark.skip(reason="moto does not complete the uploads of S3A (status 100). Run this with another server of S3.")
@pytest.mark.slow
@pytest.mark.nightly
def test_job_in_an_object_store(s3_server: S3Server, tmp_path: Path) -> None:
    """Its session has Hadoop's S3 file system, which must be there from the start."""
    try:
        jars = ",".join(s3_jars())
    except MissingComponentError as error:
        pytest.skip(str(error))
    settings = {
        **s3_server.in_spark(),
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(tmp_path / "local"),
        "spark.hadoop.fs.s3a.buffer.dir": str(tmp_path / "buffer"),
    }
    folder = f"{S3Server.BUCKET}/{uuid4()}"
    command = [sys.executable, "-m", "tests.spark.remote_job", json.dumps(settings), f"s3a://{folder}"]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **s3_server.in_environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=560,
    )
    assert ran.stdout.endswith("checked\n"), ran.stderr[-5_000:]
    written = read_files(f"{folder}/out", filesystem=s3_server.in_arrow()).to_arrow()
    assert written.num_rows == len(set(written["record"].to_pylist())) == 82
