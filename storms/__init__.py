"""Storms: long stress tests that attack jobs with kills, damage, changes and bad records, and count the outcomes."""
