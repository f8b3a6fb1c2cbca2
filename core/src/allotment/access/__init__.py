"""Whether a device can touch memory, decided by a table of rules, with a reason and a remedy."""

from allotment.access._arguments import arrays_in, attributes_of
from allotment.access._case import AccessCase
from allotment.access._launch_check import CHECKS, LaunchCheck, reset_access_warnings
from allotment.access._query import can_access, case_of, explain_access
from allotment.access._rules import RULES, Rule, judge
from allotment.access._survey import kinds_of, survey
from allotment.access._verdict import AccessReport, Verdict

__all__ = [
    "CHECKS",
    "RULES",
    "AccessCase",
    "AccessReport",
    "LaunchCheck",
    "Rule",
    "Verdict",
    "arrays_in",
    "attributes_of",
    "can_access",
    "case_of",
    "explain_access",
    "judge",
    "kinds_of",
    "reset_access_warnings",
    "survey",
]
