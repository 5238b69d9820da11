"""Diagrams of channels: the subtasks of operators, and which watermarks each channel carries."""

from dsv2.views.explain.channels.diagram import ChannelDiagram, ChannelFormat
from dsv2.views.explain.channels.model import channels_of

__all__ = ("ChannelDiagram", "ChannelFormat", "channels_of")
