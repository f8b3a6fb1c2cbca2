"""Fails: runtime_error."""

raise RuntimeError("no driver found.")
