"""Data exchange between subtasks: emitters, frames and input gates."""
