"""CUDA, through CuPy and, for what that lacks, cuda-bindings. Neither is imported before a platform is made."""

from allotment.platform.cuda._availability import availability
from allotment.platform.cuda._platform import CudaPlatform

__all__ = ["CudaPlatform", "availability"]
