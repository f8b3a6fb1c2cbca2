"""Leaves a mark when it is imported, slowly, and fails."""

import os
import time
from pathlib import Path

with Path(os.environ["FAKE_MARKS"]).open("a") as marks:
    marks.write(f"{__name__}\n")
time.sleep(0.05)
raise RuntimeError("after the mark")
