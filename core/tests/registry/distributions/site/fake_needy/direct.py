"""Needs what is not installed."""

import absent_backend  # noqa: F401
