"""The engine-neutral subtask: it receives and emits frames, and supports snapshot and restore. All runtimes use it."""
