"""Fails: recursion_error."""


def forever():
    return forever()


forever()
