"""How the parts of the simulation refuse a call."""

from __future__ import annotations


class Refused(Exception):
    """A call is refused; the platform adds the call's name and raises a `PlatformError`.

    Parameters
    ----------
    code
        CUDA's name for the error.
    detail
        What more is known.
    """

    def __init__(self, code: str, detail: str | None = None) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


INVALID_VALUE = "cudaErrorInvalidValue"
INVALID_DEVICE = "cudaErrorInvalidDevice"
INVALID_HANDLE = "cudaErrorInvalidResourceHandle"
OUT_OF_MEMORY = "cudaErrorMemoryAllocation"
NOT_SUPPORTED = "cudaErrorNotSupported"
ILLEGAL_ADDRESS = "cudaErrorIllegalAddress"
SEGMENTATION_FAULT = "SIGSEGV"
"""Not an error of CUDA: on the hardware, the process ends."""
