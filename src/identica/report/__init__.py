"""Web pages and tables made from results."""

from identica.report.demo import write_demo_report

__all__ = ["write_demo_report"]
