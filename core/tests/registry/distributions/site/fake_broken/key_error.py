"""Fails: key_error."""

import os

os.environ["FAKE_VARIABLE_THAT_IS_NOT_SET"]
