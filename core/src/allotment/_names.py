"""The names of allocators and plugins, as they are compared."""


def normalise_name(name: str) -> str:
    """Return ``name`` in the one form in which names are compared: lower-case, with ``-`` for ``_``.

    Examples
    --------
    >>> normalise_name("Torch_Caching")
    'torch-caching'
    """
    return name.strip().lower().replace("_", "-")
