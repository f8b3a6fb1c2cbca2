"""Fails: interrupt."""

raise KeyboardInterrupt
