"""A source and a sink for MQTT: ``pip install "dsv2[mqtt]"``."""

from dsv2.connectors.mqtt.receiver import MqttMessage
from dsv2.connectors.mqtt.sink import MqttSink
from dsv2.connectors.mqtt.source import MqttSource

__all__ = ("MqttMessage", "MqttSink", "MqttSource")
