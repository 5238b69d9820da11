"""``SchemaRegistry``: where decoders find schemas, and under which names encoders look theirs up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Literal

from dsv2.base.secrets import ClientOptions, OptionValue
from dsv2.checks.arguments import as_choice
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError
from dsv2.model.resource import Resource

if TYPE_CHECKING:
    from dsv2.connectors.formats.registry_client import RegistryClient


class MessagePart(Enum):
    """A part of a Kafka message."""

    KEY = "key"
    VALUE = "value"


class SubjectNameStrategy(Enum):
    """The names of a topic's schemas in the registry (Confluent ``subject.name.strategy``)."""

    TOPIC = "topic"
    """``orders-value``: one schema for the values of a topic, and one for its keys."""
    RECORD = "record"
    """``shop.Order``: one schema for a record class, in all topics."""
    TOPIC_RECORD = "topic-record"
    """``orders-shop.Order``: several record classes in a topic."""


@dataclass(frozen=True)
class ImportedSchema:
    """A schema that another one imports. ``name``: How that one names it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class WrittenSchema:
    """A schema as the registry has it. ``kind``: AVRO, PROTOBUF or JSON."""

    kind: str
    text: str
    references: tuple[ImportedSchema, ...] = ()


class SchemaRegistry:
    """A schema registry with the interface of Confluent's, such as Karapace or Apicurio.

    A worker process connects when it first needs a schema, and looks each schema up once. The connection is closed when
    the process has not used it for 45 seconds.

    Args:
        url: ``"https://host:port"``, or several, separated by commas.
        options: Options of Confluent's Python client: ``basic.auth.user.info`` (``"user:password"``),
            ``ssl.ca.location``, ``ssl.certificate.location``, ``ssl.key.location``, ``ssl.key.password``,
            ``bearer.auth.*``, ``timeout`` (in s, default 30), ``max.retries`` (default 3), ``proxy``. Secrets among
            them are never shown.

    Raises:
        ConfigurationError: An argument is invalid, or the client library is not installed.
    """

    def __init__(self, url: str, options: Mapping[str, OptionValue] | None = None) -> None:
        require_client_library("confluent_kafka", "schema-registry", "SchemaRegistry")
        require_client_library("authlib", "schema-registry", "SchemaRegistry")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ConfigurationError('SchemaRegistry requires a url: "https://host:port".')
        if "@" in url:
            raise ConfigurationError(
                "SchemaRegistry: url must have no user or password. Pass these as the option basic.auth.user.info: "
                '"user:password".'
            )
        self._url = url
        self._options = ClientOptions(options or {})
        from dsv2.connectors.formats.registry_client import RegistryClient, check_options

        check_options(url, self._options)
        self._client = Resource(partial(RegistryClient, url, self._options), close=RegistryClient.close)

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._url!r}, {self._options})"

    @property
    def client(self) -> RegistryClient:
        """The client of this process."""
        return self._client.get()

    def subject(
        self,
        topic: str,
        *,
        part: MessagePart | Literal["key", "value"] = MessagePart.VALUE,
        strategy: SubjectNameStrategy | Literal["topic", "record", "topic-record"] = SubjectNameStrategy.TOPIC,
        auto_register: bool = False,
    ) -> Subject:
        """Return where an encoder finds the id of its schema.

        Args:
            topic: The topic that is written to. ``strategy="record"`` ignores it.
            part: Whether the encoder writes the values (the default) or the keys.
            strategy: How the schemas of the topic are named.
            auto_register: Whether to register the schema if the registry does not have it. Otherwise that is an error.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        chosen = as_choice(SubjectNameStrategy, strategy, "strategy")
        if not topic and chosen is not SubjectNameStrategy.RECORD:
            raise ConfigurationError(f"The subject name strategy {chosen.value!r} requires a topic.")
        return Subject(self, topic, as_choice(MessagePart, part, "part"), chosen, auto_register)


@dataclass(frozen=True)
class Subject:
    """The name under which an encoder looks up its schema. ``SchemaRegistry.subject`` creates it."""

    registry: SchemaRegistry
    topic: str
    part: MessagePart
    strategy: SubjectNameStrategy
    auto_register: bool

    def name(self, record: str) -> str:
        """Return the name for the record with the full name ``record``."""
        if self.strategy is SubjectNameStrategy.TOPIC:
            return f"{self.topic}-{self.part.value}"
        return record if self.strategy is SubjectNameStrategy.RECORD else f"{self.topic}-{record}"

    def id_of(self, schema: WrittenSchema, record: str) -> int:
        """Return the id of ``schema``, which the registry has or gets. ``record``: The full name of its record.

        Raises:
            JobError: The registry does not have the schema, refuses it, or cannot be reached.
        """
        return self.registry.client.id_of(self.name(record), schema, register=self.auto_register)
