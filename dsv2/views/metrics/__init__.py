"""Metrics of jobs for monitoring systems: ``dsv2.views.metrics.prometheus`` and ``dsv2.views.metrics.opentelemetry``.

Both require the extra ``dsv2[metrics]``. ``docs/metrics.md`` lists the metrics.
"""
