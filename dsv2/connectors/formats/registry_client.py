"""Requests to a schema registry. The client library caches schemas: the registry never changes that of an id."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka.schema_registry import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)

from dsv2.base.secrets import ClientOptions
from dsv2.base.type_variables import T
from dsv2.connectors.formats.error import FormatError
from dsv2.connectors.formats.registry import ImportedSchema, WrittenSchema
from dsv2.errors import ConfigurationError, JobError

_DEFAULTS = {"timeout": 30}  # the client would wait without a limit
_OF_WORKERS = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password")
_UNKNOWN_SCHEMA = (40403,)
_NOT_REGISTERED = (40401, 40403)  # no such subject; no such schema in it


def check_options(url: str, options: ClientOptions) -> None:
    """Raise ``ConfigurationError`` if the client library rejects an option. Certificates may exist on workers only."""
    checked = {name: options[name] for name in options if name not in _OF_WORKERS}
    _connected(url, ClientOptions({**checked, "ssl.ca.location": False})).close()


class RegistryClient:
    """A connection to a registry.

    Raises:
        ConfigurationError: The client library rejects the options.
    """

    def __init__(self, url: str, options: ClientOptions) -> None:
        self._url = url
        self._options = options
        self._client = _connected(url, options)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def schema(self, schema_id: int, kind: str) -> WrittenSchema:
        """Return the schema with an id.

        Raises:
            FormatError: The registry does not have it, or it is not of ``kind``.
            JobError: The registry cannot be reached, or refuses the request.
        """
        try:
            answer = self._request(
                f"Cannot read schema {schema_id}", lambda: self._get(schema_id, kind), _UNKNOWN_SCHEMA
            )
        except SchemaRegistryError as error:
            raise FormatError(
                f"the registry {self._url} has no schema {schema_id}: {self._shown(error)}"
            ) from self._options.presentable(error)
        found = _written(answer)
        if found.kind != kind:
            raise FormatError(f"schema {schema_id} is a schema of {found.kind}, not of {kind}")
        return found

    def referenced(self, reference: ImportedSchema) -> WrittenSchema:
        """Return the schema to which ``reference`` refers. Raises ``JobError``."""
        what = f"Cannot read version {reference.version} of the subject {reference.subject!r}"
        found = self._request(what, lambda: self._client.get_version(reference.subject, reference.version, True))
        return _written(found.schema)

    def id_of(self, subject: str, schema: WrittenSchema, *, register: bool) -> int:
        """Return the id of ``schema`` in ``subject``. ``register``: Whether to register it if necessary.

        Raises:
            JobError: The registry does not have the schema, refuses it, or cannot be reached.
        """
        if register:
            what = f"Cannot register the schema in the subject {subject!r}"
            return self._request(what, lambda: self._client.register_schema(subject, _given(schema)))
        found = self._look_up(subject, schema).schema_id
        assert found is not None
        return found

    def version_of(self, subject: str, schema: WrittenSchema, *, register: bool) -> int:
        """Return the version of ``schema`` in ``subject``, to refer to it. See ``id_of``."""
        if register:
            self.id_of(subject, schema, register=True)
        version = self._look_up(subject, schema).version
        assert version is not None
        return version

    def _get(self, schema_id: int, kind: str) -> Schema:
        if kind != "PROTOBUF":
            return self._client.get_schema(schema_id)
        try:
            return self._client.get_schema(schema_id, fmt="serialized")  # Python cannot parse source text
        except SchemaRegistryError as error:
            if error.error_code in _UNKNOWN_SCHEMA:
                raise
            return self._client.get_schema(schema_id)  # Apicurio fails to convert it, and returns what it was given

    def _look_up(self, subject: str, schema: WrittenSchema) -> RegisteredSchema:
        what = f"Cannot look up the schema in the subject {subject!r}"
        try:
            return self._request(what, lambda: self._client.lookup_schema(subject, _given(schema)), _NOT_REGISTERED)
        except SchemaRegistryError as error:
            raise JobError(
                f"The schema is not registered in the subject {subject!r} of the registry {self._url}: "
                f"{self._shown(error)}. Register it, or set auto_register=True."
            ) from self._options.presentable(error)

    def _request(self, what: str, call: Callable[[], T], expected: tuple[int, ...] = ()) -> T:
        """Call the client. Raises ``JobError``, or the ``SchemaRegistryError`` if its code is ``expected``."""
        try:
            return call()
        except Exception as error:
            if isinstance(error, SchemaRegistryError) and error.error_code in expected:
                raise
            raise JobError(f"{what} at the registry {self._url}: {self._shown(error)}") from self._options.presentable(
                error
            )

    def _shown(self, error: Exception) -> str:
        return self._options.redacted(f"{type(error).__qualname__}: {error}")


def _connected(url: str, options: ClientOptions) -> SchemaRegistryClient:
    try:
        return SchemaRegistryClient({**_DEFAULTS, **options, "url": url})
    except Exception as error:
        # Not as the cause: the client's messages may contain the value of an option.
        reason = options.redacted(f"{type(error).__qualname__}: {error}")
        raise ConfigurationError(f"The client of the schema registry rejects the options: {reason}") from None


def _written(schema: Schema) -> WrittenSchema:
    references = [ImportedSchema(str(r.name), str(r.subject), int(r.version or 0)) for r in schema.references or ()]
    return WrittenSchema(schema.schema_type or "AVRO", schema.schema_str or "", tuple(references))


def _given(schema: WrittenSchema) -> Schema:
    references = [SchemaReference(name=r.name, subject=r.subject, version=r.version) for r in schema.references]
    return Schema(schema.text, schema.kind, references)
