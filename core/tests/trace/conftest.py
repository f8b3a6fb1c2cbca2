import gzip

import pytest

HEADER = "op,id,size,stream\n"


@pytest.fixture
def trace_file(tmp_path):
    """Return what writes a trace file: its text after the header, compressed or not."""

    def write(body, *, name="trace.csv", header=HEADER):
        path = tmp_path / name
        content = (header + body).encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write
