"""Needs what is not installed."""

import fake_dependency  # noqa: F401
