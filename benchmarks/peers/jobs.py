"""All jobs, and who does them."""

from __future__ import annotations

from benchmarks.peers.environments import BYTEWAX, FLINK, PROTOBUF, PYFLINK
from benchmarks.peers.roster import DSV2, PLAIN, Contestant, Job, Target

__all__ = ("JOBS",)

JAVA, PYTHON, BYTE, PANDAS, TRANSFORM, SQL = (
    "Flink's Java DataStream V2",
    "PyFlink",
    "Bytewax",
    "applyInPandasWithState",
    "transformWithStateInPandas",
    "Spark SQL",
)

HOT_TOPICS = Job(
    "hot_topics",
    "Hot topics",
    (
        Contestant("plain loop", PLAIN, "plain"),
        Contestant("plain loop, tweets made before", "plain loop, ready", "plain", mode="ready"),
        Contestant("plain loop, as in the document", "plain loop, document", "plain", mode="document"),
        Contestant("dsv2", DSV2, "on_dsv2", parallelism=2, near=0.1),
        Contestant("dsv2, as in the document", "dsv2, document", "on_dsv2", parallelism=2, mode="document", near=0.1),
        Contestant("Flink Java", JAVA, "HotTopics", FLINK),
        Contestant("Flink Java, parallelism 2", JAVA, "HotTopics", FLINK, parallelism=2, near=0.1),
        Contestant("Flink Java, records copied (its default)", JAVA, "HotTopics", FLINK, mode="copying"),
        Contestant("Flink Java, as in the document", "Flink Java, document", "HotTopics", FLINK, mode="document"),
        Contestant("Bytewax", BYTE, "on_bytewax", BYTEWAX),
        Contestant("PyFlink, thread mode", PYTHON, "on_pyflink", PYFLINK, mode="thread", most=((0, 50_000),)),
        Contestant("PyFlink, process mode", PYTHON, "on_pyflink", PYFLINK, mode="process", most=((0, 50_000),)),
        Contestant("applyInPandasWithState", PANDAS, "in_pandas", most=((1_000_000, 50_000),)),
        Contestant("transformWithStateInPandas", TRANSFORM, "with_transform", PROTOBUF, most=((1_000_000, 50_000),)),
    ),
    keys=(1_000, 50_000, 1_000_000),
    targets=(
        Target(PLAIN, 0.6, 1_000),
        Target(JAVA, 1.0, 1_000),
        Target(BYTE, 1.5, 1_000),
        Target(PYTHON, 30, 1_000),
        Target(PANDAS, 12, 1_000),
        Target(PANDAS, 150, 50_000),
    ),
    absent=((SQL, "no way to say it: what is hot depends on the tweets before, one by one"),),
)

JOBS: dict[str, Job] = {job.name: job for job in (HOT_TOPICS,)}
