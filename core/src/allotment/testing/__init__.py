"""The conformance kit: the numbered rules of the allocator contract as a suite of tests that a plugin adopts.

It needs the extra ``allotment[testing]``; the command ``allotment check`` alone imports it in Allotment. Names are
loaded when they are first used, because pytest imports this package wherever Allotment is installed, with the extra or
without.

Examples
--------
A plugin's whole ``tests/test_conformance.py``:

>>> from allotment.testing import AllocatorConformance
>>> class TestMine(AllocatorConformance):
...     allocator_name = "mine"
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allotment.testing._accounts import AccountTests
    from allotment.testing._allocation import AllocationTests
    from allotment.testing._c_functions import CFunctionTests
    from allotment.testing._capture import CaptureTests
    from allotment.testing._check import CheckReport, RuleReport, RuleStatus, Trial, check_allocator
    from allotment.testing._conformance import AllocatorConformance
    from allotment.testing._contents import ContentsTests
    from allotment.testing._declarations import DeclarationTests
    from allotment.testing._devices import DeviceTests
    from allotment.testing._errors import ErrorTests
    from allotment.testing._fixtures import AllocatorFixtures
    from allotment.testing._lifetime import LifetimeTests
    from allotment.testing._ownership import OwnershipTests
    from allotment.testing._recording import RecordingAllocator
    from allotment.testing._reservation import ReservationTests
    from allotment.testing._rule import RULES, rule
    from allotment.testing._sizes import SizeTests
    from allotment.testing._stateful import SequenceTests
    from allotment.testing._streams import StreamTests
    from allotment.testing._subject import Subject
    from allotment.testing._threads import ThreadTests

__all__ = [
    "RULES",
    "AccountTests",
    "AllocationTests",
    "AllocatorConformance",
    "AllocatorFixtures",
    "CFunctionTests",
    "CaptureTests",
    "CheckReport",
    "ContentsTests",
    "DeclarationTests",
    "DeviceTests",
    "ErrorTests",
    "LifetimeTests",
    "OwnershipTests",
    "RecordingAllocator",
    "ReservationTests",
    "RuleReport",
    "RuleStatus",
    "SequenceTests",
    "SizeTests",
    "StreamTests",
    "Subject",
    "ThreadTests",
    "Trial",
    "check_allocator",
    "rule",
]

_HOMES = {
    "_accounts": "AccountTests",
    "_allocation": "AllocationTests",
    "_c_functions": "CFunctionTests",
    "_capture": "CaptureTests",
    "_check": "CheckReport RuleReport RuleStatus Trial check_allocator",
    "_conformance": "AllocatorConformance",
    "_contents": "ContentsTests",
    "_declarations": "DeclarationTests",
    "_devices": "DeviceTests",
    "_errors": "ErrorTests",
    "_fixtures": "AllocatorFixtures",
    "_lifetime": "LifetimeTests",
    "_ownership": "OwnershipTests",
    "_recording": "RecordingAllocator",
    "_reservation": "ReservationTests",
    "_rule": "RULES rule",
    "_sizes": "SizeTests",
    "_stateful": "SequenceTests",
    "_streams": "StreamTests",
    "_subject": "Subject",
    "_threads": "ThreadTests",
}
"""The module of each public name."""

_MODULE_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _require_extra()
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def _require_extra() -> None:
    """Raise if what the kit is built on is missing; else let pytest explain the kit's assertions."""
    try:
        import hypothesis  # noqa: F401
        import pytest
    except ImportError as error:
        raise ImportError(
            f"allotment.testing needs pytest and hypothesis ({error}): pip install 'allotment[testing]'",
            name=error.name,
        ) from error
    pytest.register_assert_rewrite(*(module for module in _MODULE_OF.values() if module not in sys.modules))


def __dir__() -> list[str]:
    return list(__all__)
