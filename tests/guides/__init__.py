"""The code of the two guides of the system that Allotment implements, run against it.

The guides are "Allocators" and "Memory Allocation and Access" of NVIDIA Warp's documentation. Their code is the
specification: it runs as it stands there, with ``wp`` bound to ``allotment``; comments are our own.
"""
