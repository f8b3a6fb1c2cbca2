"""A process that has imported what the kit's child program needs, and forks for each act that is asked of it.

Run as a script it reads acts from standard input, one a line as JSON, and answers each with the act's end. Starting an
interpreter for each act would take longer than all the rest of the kit; so what acts import is imported here first.
"""

import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
IMPORTED_FIRST = (
    "email.parser",
    "importlib.resources.readers",
    "platformdirs.unix",
    "right_allocators",
    "allotment.capture",
    "allotment.factories",
    "allotment.platform.simulated",
    "allotment.session",
)
"""What acts import."""


class OtherProcesses:
    """What acts of the kit's child program run in, inside a ``with`` block."""

    def __enter__(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ALLOTMENT_")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        command = [sys.executable, "-P", str(Path(__file__))]
        self._process = subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def end_of(self, act, allocator):
        """Return how an act ended: the exit code, and what it wrote to standard output and standard error."""
        self._process.stdin.write(json.dumps([act, allocator]) + "\n")
        self._process.stdin.flush()
        return tuple(json.loads(self._process.stdout.readline()))


def serve():
    """Fork for each line, and answer; return the line in the process that is to do what it says."""
    for line in sys.stdin:
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as problems:
            child = os.fork()
            if child == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(problems.fileno(), 2)
                return line
            _, status = os.waitpid(child, 0)
            said = [_written(file) for file in (output, problems)]
        print(json.dumps([os.waitstatus_to_exitcode(status), *said]), flush=True)
    return None


def _written(file):
    file.seek(0)
    return file.read()


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    for name in IMPORTED_FIRST:
        importlib.import_module(name)
    from allotment.testing._child_program import ACTS

    gc.collect()
    gc.freeze()
    asked = serve()
    if asked is not None:
        act, allocator = json.loads(asked)
        ACTS[act](allocator)
