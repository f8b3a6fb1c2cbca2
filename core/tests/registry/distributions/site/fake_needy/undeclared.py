"""Needs what is not installed."""

import absent_and_undeclared  # noqa: F401
