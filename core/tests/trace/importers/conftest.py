import pytest

from allotment.trace import read


@pytest.fixture
def events_and_problems(tmp_path):
    """Return what reads a file's content and gives its events and the problems that were told."""

    def read_content(content, name="trace"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        problems = []
        return list(read(path, problems.append)), problems

    return read_content
