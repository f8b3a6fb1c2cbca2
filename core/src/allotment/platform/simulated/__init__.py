"""A pure-Python model of the CUDA memory API: GPU code tried out without a GPU.

It answers as two H200s were recorded to answer, with real data in memory that costs the host nothing until it is
touched. It is stricter than the hardware in three places, because a test should see what a GPU may hide: a kernel that
touches freed memory or runs past a block always faults, what would end the process on the hardware (a copy out of freed
memory, say) is refused with ``SIGSEGV`` as the name of the error, and a pool refuses what it cannot hold before it maps
anything. Contexts take no memory here.
"""

from allotment.platform.simulated._calls import Call, CallLog
from allotment.platform.simulated._platform import SimulatedPlatform
from allotment.platform.simulated._pointer import ManagedState
from allotment.platform.simulated._profile import Profile, load_profile, profile_names

__all__ = ["Call", "CallLog", "ManagedState", "Profile", "SimulatedPlatform", "load_profile", "profile_names"]
