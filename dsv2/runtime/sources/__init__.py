"""Sources: readers, splits and offsets."""
