"""Running count per key."""
