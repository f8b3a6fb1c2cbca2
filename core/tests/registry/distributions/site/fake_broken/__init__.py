"""A package of plugins each of which breaks in its own way when it is imported."""
