"""The view of a plan: operators, edges, watermarks and findings as values, which explanations and reports read."""
