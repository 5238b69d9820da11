"""Views of plans and jobs: explain, terminal, dashboard, metrics and logs."""
