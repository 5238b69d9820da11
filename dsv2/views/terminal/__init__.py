"""Shows jobs on a terminal or in a notebook, and stops them on Ctrl-C.

``watch(job)`` waits for a job that ``execute_async`` has started. ``LiveView`` is a listener for ``execute``.
"""

from dsv2.views.terminal.job_watch import watch
from dsv2.views.terminal.live_view import LiveView
from dsv2.views.terminal.signals import NotedSignals, signals_noted

__all__ = ("LiveView", "NotedSignals", "signals_noted", "watch")
