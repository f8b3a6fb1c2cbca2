"""Needs what is not installed."""

import absent_toolkit  # noqa: F401
