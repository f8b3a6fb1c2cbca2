"""Fails: import_error."""

from math import no_such_function  # noqa: F401
