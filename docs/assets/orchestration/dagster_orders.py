"""An asset of Dagster that runs a job once an hour, for the orders that have arrived since."""

import os
import subprocess

import dagster

PROJECT = os.environ.get("SHOP_PROJECT", "/opt/shop")  # with its own virtual environment
COMMAND = [f"{PROJECT}/venv/bin/dsv2", "run", "shop.jobs:totals", "--available-now", "--log-format", "json"]


@dagster.asset(
    retry_policy=dagster.RetryPolicy(max_retries=3, delay=60),  # each continues from the checkpoint
    pool="orders",  # with a limit of 1: a second run on the same checkpoint would be refused
)
def totals() -> None:
    """The totals of all orders, in the folder of the file sink."""
    subprocess.run(COMMAND, cwd=PROJECT, check=True)


hourly = dagster.ScheduleDefinition("hourly_totals", target=[totals], cron_schedule="0 * * * *")
defs = dagster.Definitions(assets=[totals], schedules=[hourly])
