"""Real servers on this machine, for the tests and for trying things out: a Kafka broker, and PostgreSQL."""
