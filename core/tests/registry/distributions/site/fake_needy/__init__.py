"""Plugins whose dependencies are not there."""
