"""`benchmarks` is no distribution: it is imported from the root of the repository, wherever pytest is started."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
