"""A page that shows the memory of a trace over time."""

from allotment.trace.report._writing import WrittenReport, write_report

__all__ = ["WrittenReport", "write_report"]
