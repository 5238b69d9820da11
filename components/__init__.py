"""Local servers for tests and experiments: a Kafka broker and PostgreSQL."""
