"""Sources of frames, as data sources of Spark."""
