"""A local HDFS cluster of one name node and one data node in one process, from Hadoop's released jars."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from pathlib import Path

from components.kafka import java_program
from components.maven import maven_classpath
from components.server import Server, free_ports

__all__ = ("HdfsCluster",)

_POM = Path(__file__).with_name("hdfs-pom.xml")
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
_JVM += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


class HdfsCluster:
    """A cluster. Its files are lost when it is stopped.

    Args:
        folder: The folder of its data.

    Attributes:
        uri: The address of its root, without a slash at the end.

    Raises:
        MissingComponentError: Java or the jars are missing.
    """

    def __init__(self, folder: Path) -> None:
        port, self._http = free_ports(2)
        java, classpath = java_program("java"), maven_classpath(_POM, "An HDFS cluster")
        settings = {
            "hadoop.tmp.dir": str(folder),
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
        }
        options = ["-format", "-datanodes", "1", "-nnport", str(port), "-httpport", str(self._http)]
        options += [part for name, value in settings.items() for part in ("-D", f"{name}={value}")]
        data = f"-Dtest.build.data={folder / 'data'}"
        command = [java, *_JVM, data, "-cp", classpath, "org.apache.hadoop.test.MiniDFSClusterManager", *options]
        os.makedirs(folder / "data", exist_ok=True)
        self._server = Server(command, port, folder / "hdfs.log", is_ready=self._has_data_node)
        self.uri = f"hdfs://127.0.0.1:{port}"

    def start(self) -> None:
        """Start the cluster and wait until it accepts files."""
        self._server.start()

    def stop(self) -> None:
        """Stop the cluster."""
        self._server.stop()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail

    def _has_data_node(self) -> bool:
        query = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._http}/{query}", timeout=5) as answer:
                return b'"NumLiveDataNodes" : 1' in answer.read()
        except (urllib.error.URLError, OSError):
            return False
