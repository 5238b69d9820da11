"""The part that the connectors of lakehouse tables share."""
