"""Metrics that a server of the program shows to Prometheus. Requires the extra ``dsv2[metrics]``."""

from __future__ import annotations

from dsv2.views.metrics.prometheus import PrometheusListener

import prometheus_client  # isort: skip - after the check that it is installed
from prometheus_client.exposition import choose_encoder  # isort: skip


class ServedMetrics(PrometheusListener):
    """The metrics of running jobs and of this process, such as its memory, in a registry of their own."""

    def __init__(self) -> None:
        self._served = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self._served)
        super().__init__(registry=self._served)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return what a scrape gets, and its content type. ``accept``: The header of the request."""
        encode, kind = choose_encoder(accept)
        return encode(self._served), kind
