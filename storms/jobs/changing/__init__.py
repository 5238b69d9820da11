"""A program that is changed between two starts. It is copied, and its text is edited."""
