"""Where tests of the kit find the allocators that it is tried on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
