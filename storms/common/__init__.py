"""What the storms share."""
