"""Validation of librdkafka options when a connector is created."""

from __future__ import annotations

import difflib
import re

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dsv2.base.secrets import ClientOptions, OptionValue
from dsv2.connectors.kafka.option_names import OPTION_NAMES
from dsv2.errors import ConfigurationError, InternalError

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
