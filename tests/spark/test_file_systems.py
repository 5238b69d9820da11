"""Checkpoints, savepoints, file sinks and dead letters on HDFS."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from components.hdfs import HdfsCluster
from tests.spark.remote_job import check, lives_of_a_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.nightly
def test_job_on_hdfs(spark: SparkSession, hdfs_cluster: HdfsCluster) -> None:
    check(lives_of_a_job(spark, f"{hdfs_cluster.uri}/jobs/{uuid4()}"))
