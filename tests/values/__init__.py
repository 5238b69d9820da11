"""The table of awkward values, and every way that a value can take through dsv2."""
