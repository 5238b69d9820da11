"""A web page that shows jobs while they run, or what their checkpoints have recorded.

``env.execute(..., dashboard=8050)`` shows a running job, ``dsv2 dashboard CHECKPOINT`` stored ones. The server needs
the extra ``dsv2[dashboard]``, which is imported only when a dashboard starts.
"""

from dsv2.jobs.dashboard_settings import Dashboard

__all__ = ("Dashboard",)
