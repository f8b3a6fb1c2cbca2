"""The public names of ``allotment``, grouped by the module that they come from."""

from __future__ import annotations

import inspect
from enum import Enum
from importlib import import_module
from typing import Any, Final

import allotment
from generated.markdown import paragraphs

TITLES: Final = {
    "factories": "Making arrays",
    "_array": "Arrays",
    "dtypes": "Element types",
    "copying": "Copying",
    "interchange": "Sharing memory",
    "foreign": "Memory of another owner",
    "device": "Devices",
    "stream": "Streams",
    "capture": "Graphs",
    "ipc": "Memory of other processes",
    "selection": "Choosing an allocator",
    "pools": "The memory pool",
    "statistics": "Accounts",
    "serving": "Watching a process",
    "memory_use": "Use of memory and its limits",
    "labels": "Labels",
    "leaks": "Live blocks, leaks and stray writes",
    "trace": "Traces",
    "layers.holder": "Who holds memory",
    "layers.accounting": "Accounts of one allocator",
    "configuration": "Configuration",
    "session": "Platforms and simulation",
    "report": "The startup report",
    "registry": "Plugins",
    "allocator": "The allocator contract",
    "memory_kind": "Kinds of memory",
    "platform": "The platform protocol",
    "units": "Amounts of memory",
    "": "The package itself",
}
"""The heading of each module's names, in the order of the page; a module that is not here comes last, by its name."""

BY_HAND: Final = {
    "API_VERSION": f"""
.. py:data:: allotment.API_VERSION
   :value: {allotment.API_VERSION}

   The version of the allocator contract: a plugin with the same major and no newer minor version is accepted.
""",
    "CudaManagedAllocator": """
.. py:class:: allotment.CudaManagedAllocator

   The class of the installed allocator of managed memory, by the name that Warp gives it. It is looked up when it is
   first asked for; without such a plugin the error says what to install.
""",
    "utils": """
.. py:data:: allotment.utils

   What the guides have below ``utils``. ``utils.AllocatorRmm`` is the class of the installed allocator over RMM, looked
   up when it is asked for: made without arguments, it draws from the memory resource that is current in RMM.
""",
    "__version__": """
.. py:data:: allotment.__version__
   :type: str

   The version of the distribution ``allotment``.
""",
    "config": """
.. py:data:: allotment.config

   The configuration in force, one attribute a key: ``al.config.platform`` reads, ``al.config.platform = "host"`` is a
   call of `configure`. Tables (``devices``, ``allocators``, ``plugins``) can only be read here.
""",
}
"""Names that are no function, class or constant of a module."""


def groups() -> dict[str, list[str]]:
    """Return the public names by module, in the order of the page. Errors have a page of their own."""
    found: dict[str, list[str]] = {}
    for name in allotment.__all__:
        found.setdefault(allotment._MODULE_OF.get(name, ""), []).append(name)
    found.pop("errors")
    order = list(TITLES)
    return dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def api() -> str:
    """Return all names with their documentation."""
    return paragraphs(_group(module, names) for module, names in groups().items())


def _group(module: str, names: list[str]) -> str:
    title = TITLES.get(module, f"`allotment.{module}`")
    about = (inspect.getdoc(import_module(f"allotment.{module}")) or "").partition("\n")[0] if module else ""
    directives = "\n".join(BY_HAND.get(name) or _directive(name, getattr(allotment, name)) for name in names)
    return paragraphs([f"## {title}", about.replace("``", "`"), f"````{{eval-rst}}\n{directives}\n````"])


MADE_BY_CORE: Final = ("AccountedAllocator", "Array", "Device")
"""Classes whose objects users get and never make, so that how they are made is left out."""


def _directive(name: str, value: Any) -> str:
    if inspect.isfunction(value):
        return f".. autofunction:: allotment.{name}\n"
    if getattr(value, "__module__", "") == "numpy":
        return f".. py:data:: allotment.{name}\n\n   ``numpy.{name}``.\n"
    if not inspect.isclass(value):
        return f".. autodata:: allotment.{name}\n"
    is_made_by_users = not (name in MADE_BY_CORE or issubclass(value, Enum) or getattr(value, "_is_protocol", False))
    options = ["   :members:", "   :undoc-members:"] if issubclass(value, Enum) else ["   :members:"]
    return "\n".join([f".. autoclass:: allotment.{name}{'' if is_made_by_users else '()'}", *options, ""])
