"""Sources and sinks for external systems. Each requires a client library, installed by an extra of dsv2."""
