"""Fails: syntax_error."""

compile("def broken(:", "fake_broken/generated.py", "exec")
