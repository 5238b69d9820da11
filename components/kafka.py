"""A local Kafka broker: one process in KRaft mode, from the released jars, which Maven downloads.

``python -m components.kafka`` (``./run kafka``) runs a broker until Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path

from components.kafka_certificates import Authority
from components.maven import maven_classpath
from components.server import MissingComponentError, Server, free_ports, listens

__all__ = ("PASSWORD", "USER", "KafkaBroker", "kafka_classpath")

USER, PASSWORD = "dsv2", "not-a-secret"  # for experiments with the secured listeners
_POM = Path(__file__).with_name("kafka-pom.xml")
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAQ"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PROTOCOLS = (
    "PLAIN:PLAINTEXT,SECURED:SASL_SSL,SCRAM:SASL_PLAINTEXT,CERTIFIED:SSL,TOKENS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
)
_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


def kafka_classpath() -> str:
    """Return the class path of a broker.

    Raises:
        MissingComponentError: The jars cannot be downloaded.
    """
    return maven_classpath(_POM, "A Kafka broker")


def java_program(name: str) -> str:
    """Return the path of a program of the JDK, such as ``java``.

    Raises:
        MissingComponentError: It is not installed.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else shutil.which(name)
    if found is None:
        raise MissingComponentError(
            f"A Kafka broker requires Java 17 or newer: there is no {name} in JAVA_HOME or on the PATH. "
            f"Install it (apt-get install openjdk-17-jre-headless), or run ./run kafka, which installs it."
        )
    return found


@dataclass(frozen=True)
class _Ports:
    plain: int
    secured: int
    scram: int
    certified: int
    tokens: int
    controller: int


class KafkaBroker:
    """A broker. Its ports stay the same when it is stopped and started again. Clients must create topics explicitly.

    Args:
        folder: The folder of its data.
        port: The port of ``bootstrap_servers``. None (default): a free port.
        session_ms: How long the broker may be busy before it counts as failed. After it was killed, it is ready when
            this time has passed. Default: 9000, as in Kafka.

    Attributes:
        bootstrap_servers: The address of the listener without authentication.
        secured_servers: The address of the listener with TLS, which requires ``USER`` and ``PASSWORD`` (SASL PLAIN).
        scram_servers: The address of the listener for SCRAM-SHA-256 and SCRAM-SHA-512, with ``USER`` and ``PASSWORD``.
        certified_servers: The address of the listener with TLS, which requires a certificate of ``authority``.
        token_servers: The address of the listener for OAUTHBEARER, which accepts tokens without a signature. A session
            ends with its token.
        certificate: The certificate that clients must trust if they use TLS.
        client_certificate: A certificate for ``certified_servers``.
        client_key: Its key, encrypted with ``PASSWORD``.

    Raises:
        MissingComponentError: Java or the jars are missing.
    """

    def __init__(self, folder: Path, port: int | None = None, *, session_ms: int = 9000) -> None:
        plain, *others = free_ports(6)
        self._ports = _Ports(plain if port is None else port, *others)
        self._folder = folder
        self._session_ms = session_ms
        java, classpath = java_program("java"), kafka_classpath()
        self._java = [java, *_JVM, "-cp", classpath]
        command = [*self._java, "kafka.Kafka", str(folder / "server.properties")]
        self._server = Server(command, self._ports.plain, folder / "log", is_ready=self._is_ready)
        self.bootstrap_servers = f"127.0.0.1:{self._ports.plain}"
        self.secured_servers = f"127.0.0.1:{self._ports.secured}"
        self.scram_servers = f"127.0.0.1:{self._ports.scram}"
        self.certified_servers = f"127.0.0.1:{self._ports.certified}"
        self.token_servers = f"127.0.0.1:{self._ports.tokens}"
        self.certificate = folder / "certificate.pem"
        self.client_certificate = folder / "client.pem"
        self.client_key = folder / "client.key"

    def start(self) -> None:
        """Start the broker and wait until it can create topics. The first start initializes the folder."""
        properties = self._folder / "server.properties"
        properties.write_text(self._properties())
        if not self.certificate.exists():
            format_storage = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(properties)]
            login = f"name={USER},password={PASSWORD}"
            users = [part for name in _SCRAM for part in ("--add-scram", f"{name}=[{login}]")]
            subprocess.run([*self._java, *format_storage, *users], capture_output=True, check=True)
            self._make_certificates()
        self._server.start()

    def stop(self) -> None:
        """Stop the broker."""
        self._server.stop()

    def kill(self) -> None:
        """Kill the broker. Messages that it has acknowledged survive."""
        self._server.kill()

    def wait(self) -> None:
        """Wait until the broker exits, or stop it on Ctrl-C."""
        self._server.wait()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail

    def _is_ready(self) -> bool:
        if not all(map(listens, astuple(self._ports))):
            return False
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        with contextlib.suppress(KafkaException):
            return bool(client.list_topics(timeout=5).brokers)  # without those that have not joined the cluster yet
        return False

    def _make_certificates(self) -> None:
        authority = Authority("dsv2 tests", self.certificate)
        authority.sign("client", self.client_certificate, self.client_key, PASSWORD)
        certificate, key = self._folder / "broker.pem", self._folder / "broker.key"
        authority.sign("broker", certificate, key)
        (self._folder / "keys.pem").write_text(key.read_text() + certificate.read_text())

    def _properties(self) -> str:
        ports = self._ports
        names = ("PLAIN", "SECURED", "SCRAM", "CERTIFIED", "TOKENS", "CONTROLLER")
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, astuple(ports), strict=True))
        modules = "org.apache.kafka.common.security"
        scram = f"{modules}.scram.ScramLoginModule required;"
        return f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{ports.controller}
controller.listener.names=CONTROLLER
listeners={listeners}
listener.security.protocol.map={_PROTOCOLS}
inter.broker.listener.name=PLAIN
sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";
listener.name.scram.sasl.enabled.mechanisms={",".join(_SCRAM)}
listener.name.scram.scram-sha-256.sasl.jaas.config={scram}
listener.name.scram.scram-sha-512.sasl.jaas.config={scram}
listener.name.certified.ssl.client.auth=required
listener.name.tokens.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.tokens.oauthbearer.sasl.jaas.config={modules}.oauthbearer.OAuthBearerLoginModule required;
listener.name.tokens.oauthbearer.connections.max.reauth.ms=3600000
ssl.keystore.type=PEM
ssl.keystore.location={self._folder}/keys.pem
ssl.truststore.type=PEM
ssl.truststore.location={self.certificate}
log.dirs={self._folder}/data
broker.heartbeat.interval.ms=500
broker.session.timeout.ms={self._session_ms}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
"""


def main() -> None:
    """Run a broker until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="./run kafka", description="Run a Kafka broker until Ctrl-C.")
    parser.add_argument("--port", type=int, default=9092, help="port of the listener without authentication (9092)")
    parser.add_argument("--data", type=Path, help="data folder (a temporary one, which is deleted)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dsv2-kafka-") as temporary:
        folder = arguments.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            broker = KafkaBroker(folder.absolute(), arguments.port)
            broker.start()
        except (MissingComponentError, RuntimeError) as error:
            parser.exit(1, f"{error}\n")
        print(
            f"Kafka listens on {broker.bootstrap_servers}; clients create the topics. Press Ctrl-C to stop it.",
            flush=True,
        )
        print(
            f"TLS, user {USER}, password {PASSWORD}: {broker.secured_servers}, certificate {broker.certificate}",
            flush=True,
        )
        broker.wait()


if __name__ == "__main__":
    main()
