"""The whole suite."""

from __future__ import annotations

from allotment.testing._accounts import AccountTests
from allotment.testing._allocation import AllocationTests
from allotment.testing._c_functions import CFunctionTests
from allotment.testing._capture import CaptureTests
from allotment.testing._contents import ContentsTests
from allotment.testing._declarations import DeclarationTests
from allotment.testing._devices import DeviceTests
from allotment.testing._errors import ErrorTests
from allotment.testing._lifetime import LifetimeTests
from allotment.testing._ownership import OwnershipTests
from allotment.testing._reservation import ReservationTests
from allotment.testing._sizes import SizeTests
from allotment.testing._stateful import SequenceTests
from allotment.testing._streams import StreamTests
from allotment.testing._threads import ThreadTests


class AllocatorConformance(
    AllocationTests,
    SizeTests,
    OwnershipTests,
    ContentsTests,
    DeviceTests,
    StreamTests,
    CaptureTests,
    ThreadTests,
    ReservationTests,
    ErrorTests,
    LifetimeTests,
    DeclarationTests,
    AccountTests,
    CFunctionTests,
    SequenceTests,
):
    """All rules of the allocator contract that tests can check.

    Examples
    --------
    >>> class TestManaged(AllocatorConformance):
    ...     allocator_name = "managed"
    ...     options = {"read_mostly": True}
    """
