"""Needs what is not installed."""

import absent_required.pool  # noqa: F401
