"""Fails: attribute_error."""

import math

math.no_such_function()
