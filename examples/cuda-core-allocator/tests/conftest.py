"""Where tests find the resource that stands for a real one. Without ``cuda.core`` nothing can be tried."""

import sys
from importlib.util import find_spec
from pathlib import Path

HAS_CUDA = find_spec("cuda") is not None
collect_ignore_glob = [] if HAS_CUDA and find_spec("cuda.core") is not None else ["test_*.py"]
sys.path.insert(0, str(Path(__file__).parent))
