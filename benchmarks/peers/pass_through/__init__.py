"""Pass-through."""
