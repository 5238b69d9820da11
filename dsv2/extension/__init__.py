"""Extensions of the core API: event time, windows and joins (Flink ``datastream.api.extension``)."""
