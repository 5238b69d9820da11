"""The client of a running job: its state, over HTTP, from the port of its dashboard.

``connect`` requires the extra ``dsv2[files]`` of the program, and a token that the job was started with.
"""

from dsv2.client.job_client import JobClient, RemoteState, connect
from dsv2.jobs.live_state import StateInfo

__all__ = ("JobClient", "RemoteState", "StateInfo", "connect")
