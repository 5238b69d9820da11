"""The engine-neutral subtask: frames in, frames out, snapshot and restore. Every runtime drives this one class."""
