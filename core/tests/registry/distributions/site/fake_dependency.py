"""Is installed, and lacks a dependency of its own."""

import absent_inner  # noqa: F401
