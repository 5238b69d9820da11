"""Metrics of jobs for monitoring systems: ``dsv2.metrics.prometheus`` and ``dsv2.metrics.opentelemetry``.

Both require the extra ``dsv2[metrics]``. ``docs/metrics.md`` lists the metrics.
"""

__all__ = ()
