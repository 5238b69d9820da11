"""Storms: long runs that attack jobs with kills, damage, changes and bad records, and count what comes of it."""
