"""The engine in plain Python: the twin of the compiled one, its oracle in tests, and what serves without a compiler."""
