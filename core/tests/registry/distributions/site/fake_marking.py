"""Leaves a mark when it is imported, slowly."""

import os
import time
from pathlib import Path

with Path(os.environ["FAKE_MARKS"]).open("a") as marks:
    marks.write(f"{__name__}\n")
time.sleep(0.05)


class Allocator:
    def allocate(self, size_in_bytes):
        return 4096

    def deallocate(self, ptr, size_in_bytes):
        pass
