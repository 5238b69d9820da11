"""A stream of Kinesis, as the source and the sink use it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import cached_property, lru_cache
from typing import Any

from dsv2.base.secrets import ClientOptions, OptionValue
from dsv2.checks.arguments import check_whole_number
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.client_errors import as_job_errors
from dsv2.errors import ConfigurationError

_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_OPTIONS = ("region_name", "endpoint_url", "use_ssl", "verify", *_KEYS)


class KinesisStream:
    """A stream.

    Args:
        user: The connector, for errors.
        name: Its name, or its ARN.
        options: Arguments of boto3's client.
        retries: How often a request is repeated.

    Raises:
        ConfigurationError: An argument is invalid, or the client library is not installed.
    """

    def __init__(self, user: str, name: str, options: Mapping[str, OptionValue] | None, retries: int) -> None:
        require_client_library("boto3", "kinesis", user)
        if not name:
            raise ConfigurationError(f"{user} requires the name or the ARN of a stream.")
        if unknown := [option for option in options or {} if option not in _OPTIONS]:
            raise ConfigurationError(f"{user} has no option {unknown[0]!r}. There are {', '.join(_OPTIONS)}.")
        check_whole_number(retries, "retries", at_least=0)
        self.name = name
        self.retries = retries
        self._options = ClientOptions(options or {})

    def __repr__(self) -> str:
        return f"{self.name}, {self._options}"

    @property
    def client(self) -> Any:
        """The client of this process. It may be used in several threads."""
        return _client(os.getpid(), self.retries, tuple(self._options.items()))

    @property
    def argument(self) -> dict[str, str]:
        """The argument by which requests name the stream."""
        return {"StreamARN" if self.name.startswith("arn:") else "StreamName": self.name}

    def errors(self, what: str) -> AbstractContextManager[None]:
        """Raise errors of the client as ``JobError`` without secrets, which begins with ``what``."""
        from botocore.exceptions import BotoCoreError, ClientError

        return as_job_errors(f"{what} the stream {self.name}", self._options, (BotoCoreError, ClientError))

    def shards(self) -> dict[str, tuple[str, ...]]:
        """Return the ids of the shards that have records or may get some, each with those of its parents."""
        found = {}
        argument = self.argument
        while argument:
            with self.errors("Cannot list the shards of"):
                answer = self.client.list_shards(**argument)
            for shard in answer["Shards"]:
                parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
                found[shard["ShardId"]] = tuple(filter(None, parents))
            argument = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else {}
        return found

    @cached_property
    def retention_hours(self) -> int:
        """The retention period."""
        return int(self.describe()["StreamDescriptionSummary"]["RetentionPeriodHours"])

    def now(self) -> datetime:
        """Return the time of the server, in whole seconds. Kinesis refuses later times."""
        return parsedate_to_datetime(self.describe()["ResponseMetadata"]["HTTPHeaders"]["date"])

    def describe(self) -> Any:
        """Return a description. Raises ``JobError`` if there is no such stream."""
        with self.errors("Cannot describe"):
            return self.client.describe_stream_summary(**self.argument)


@lru_cache(maxsize=16)  # a client takes long to create, and keeps credentials that were looked up
def _client(process: int, retries: int, options: tuple[tuple[str, OptionValue], ...]) -> Any:
    """Create a client. ``process``: Its id, as a forked process must not use the connections of another."""
    from boto3 import Session
    from botocore.config import Config

    # This mode repeats requests that exceed a limit of the stream, with growing pauses.
    config = Config(retries={"total_max_attempts": retries + 1, "mode": "standard"})
    return Session().client("kinesis", config=config, **dict(options))
