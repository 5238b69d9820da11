"""Code shared by the storms."""
