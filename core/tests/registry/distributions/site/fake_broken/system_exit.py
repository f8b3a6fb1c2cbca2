"""Fails: system_exit."""

import sys

sys.exit(3)
