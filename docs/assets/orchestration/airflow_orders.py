"""A DAG that runs a job once an hour, for the orders that have arrived since."""

import os
from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

PROJECT = os.environ.get("SHOP_PROJECT", "/opt/shop")  # with its own virtual environment

with DAG(
    "orders",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # one run reads everything that has arrived
    max_active_runs=1,  # a second run on the same checkpoint would be refused
) as dag:
    BashOperator(
        task_id="totals",
        bash_command=f"{PROJECT}/venv/bin/dsv2 run shop.jobs:totals --available-now --log-format json",
        cwd=PROJECT,
        retries=3,  # each continues from the checkpoint
        retry_delay=timedelta(minutes=1),
        execution_timeout=timedelta(hours=1),
    )
