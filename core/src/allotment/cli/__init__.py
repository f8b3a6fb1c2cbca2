"""The command line ``allotment``.

Exit codes: 0 if all is well, 1 if something is wrong or the answer is no, 2 for wrong usage, 130 after Ctrl-C. With
``--json`` standard output holds one JSON document and nothing else; messages go to standard error.
"""

from allotment.cli._app import build_app, main

__all__ = ["build_app", "main"]
