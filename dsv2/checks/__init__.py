"""Checks of arguments, and the errors that users see."""
