"""Proof on real hardware: the whole ``gpu`` lane, and a page that says when, where and with what outcome it ran."""
