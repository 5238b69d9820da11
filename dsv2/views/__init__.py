"""Views of plans and jobs: explain, watermark reports, terminal, dashboard, metrics and logs."""

__all__ = ()
