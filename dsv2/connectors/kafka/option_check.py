"""Validation of librdkafka options when a connector is created."""

from __future__ import annotations

import difflib
import re

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dsv2.base.secrets import ClientOptions, OptionValue
from dsv2.errors import ConfigurationError, InternalError

_NAMES = """
acks allow.auto.create.topics api.version.request.timeout.ms auto.commit.interval.ms batch.num.messages batch.size
broker.address.family broker.address.ttl check.crcs client.dns.lookup client.id client.rack compression.codec
compression.level compression.type connections.max.idle.ms consume.callback.max.messages
coordinator.query.interval.ms debug delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee
enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification
fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
fetch.wait.max.ms group.instance.id group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms
https.ca.location https.ca.pem internal.termination.signal isolation.level linger.ms log.connection.close log.queue
log.thread.name log_level max.in.flight max.in.flight.requests.per.connection max.partition.fetch.bytes
max.poll.interval.ms max.poll.records message.copy.max.bytes message.max.bytes message.send.max.retries
message.timeout.ms metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
partition.assignment.strategy partitioner queue.buffering.backpressure.threshold queue.buffering.max.kbytes
queue.buffering.max.messages queue.buffering.max.ms queued.min.messages receive.message.max.bytes
reconnect.backoff.max.ms reconnect.backoff.ms request.required.acks request.timeout.ms retries retry.backoff.max.ms
retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism sasl.mechanisms
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.grant.type
sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol
session.timeout.ms share.acknowledgement.mode socket.connection.setup.timeout.ms socket.keepalive.enable
socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites
ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id ssl.key.location
ssl.key.password ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.sigalgs.list statistics.interval.ms
sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
transaction.timeout.ms
"""

OPTION_NAMES = tuple(_NAMES.split())


# The client library checks options in order and stops at the first unknown one. A final unknown option prevents it from
# creating a client and connecting.
_LAST = "dsv2.last"
_UNKNOWN = re.compile(r'No such configuration property: "(.*)"', re.DOTALL)


def check_options(user: str, options: ClientOptions) -> None:
    """Check the options of the connector ``user``.

    Raises:
        ConfigurationError: The client library rejects an option. The message shows no value that may be a secret.
    """
    for name, value in options.items():
        if not isinstance(name, str):
            raise ConfigurationError(f"{user}: the names of options must be strings, got {type(name).__name__}.")
        refusal = _refusal(name, value)
        unknown = _UNKNOWN.fullmatch(refusal)
        if unknown is None:
            reason = _without_value(refusal, name, str(value))
            raise ConfigurationError(f"{user}: librdkafka rejects the value of the option {name!r}.{reason}")
        if unknown.group(1) != _LAST:
            raise ConfigurationError(f"{user}: librdkafka has no option {name!r}.{_suggestion(name)}")


def _without_value(refusal: str, name: str, value: str) -> str:
    """The client's reason, or "" if it shows a part of ``value``: a secret may be set for the wrong option."""
    rest = refusal.replace(name, "").lower()
    shown = any(part in rest for part in re.split(r"[\s,;:=|]+", value.lower()) if part)
    return "" if shown else f" {refusal}"


def _refusal(name: str, value: OptionValue) -> str:
    try:
        AdminClient({name: value, _LAST: ""})
    except KafkaException as error:
        return str(error.args[0].str())
    except (TypeError, ValueError) as error:
        return str(error)
    raise InternalError(f"librdkafka accepted the unknown option {_LAST!r}.")


def _suggestion(name: str) -> str:
    plain = re.sub(r"[_\-. ]+", ".", name.strip().lower())
    found = difflib.get_close_matches(plain, OPTION_NAMES, n=1)
    return f" Did you mean {found[0]!r}?" if found else ""
