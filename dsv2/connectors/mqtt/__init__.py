"""A sink for MQTT: ``pip install "dsv2[mqtt]"``."""

from dsv2.connectors.mqtt.sink import MqttSink

__all__ = ("MqttSink",)
