"""Findings about a plan: mistakes that it shows, and costs that are easy to miss.

``explain`` shows all findings. ``execute`` warns of those with the severity ``WARNING``.
"""

from dsv2.findings.finding import Finding, Severity

__all__ = ("Finding", "Severity")
