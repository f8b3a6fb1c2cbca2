"""What the page is given can be read back, whatever is in it."""

import base64
import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.trace.report._columns import gather
from allotment.trace.report._document import as_script_text, describe_trace, pack, pack_trace

NUMBERS = st.lists(st.integers(0, 2**53)) | st.lists(st.integers(0, 300)) | st.lists(st.integers(-5, 5))


def read_back(packed, name):
    """Return a column as the page's program reads it."""
    layout = packed.layout[name]
    content = gzip.decompress(base64.b64decode(packed.as_text()))
    stored = np.frombuffer(content, f"<{np.dtype(layout['type']).str[1:]}", layout["count"], layout["begin"])
    return (np.cumsum(stored.astype(np.float64)) if layout["differences"] else stored.astype(np.float64)).tolist()


@given(st.lists(NUMBERS, min_size=1, max_size=3))
def test_packed_columns_are_read_back_as_they_were(columns):
    packed = pack({str(index): np.array(column, np.int64) for index, column in enumerate(columns)})

    assert [read_back(packed, str(index)) for index in range(len(columns))] == columns


@pytest.mark.parametrize(
    ("values", "kind"), [([5, 255], "uint8"), ([9, 256, 3], "uint16"), ([2**31, 0], "uint32"), ([2**40, 0], "float64")]
)
def test_a_column_takes_the_smallest_type_that_holds_it(values, kind):
    assert pack({"it": np.array(values, np.int64)}).layout["it"]["type"] == kind


def test_a_column_that_rises_is_told_by_its_differences():
    layout = pack({"it": np.arange(10**6, 10**6 + 100)}).layout["it"]

    assert layout["differences"]


def test_each_column_begins_where_a_typed_array_may():
    packed = pack({"odd": np.array([3, 1, 2], np.int64), "next": np.array([2**40, 1], np.int64)})

    assert packed.layout["next"]["begin"] % 8 == 0


def test_a_trace_without_times_has_no_column_of_them(leak):
    assert "time" in pack_trace(gather(leak)).layout
    assert "time" not in pack_trace(gather([])).layout


def test_the_document_tells_who_asked_by_indices_into_its_tables(leak):
    document = describe_trace(gather(leak), "a trace", "0.1.0")

    assert document["labels"] == ("weights", "activations")
    assert document["frames"] == [("train.py", 7, "forward"), ("train.py", 20, "main")]
    assert document["sites"] == [{"frames": [0, 1], "library": "torch"}]
    assert document["sources"] == [{"device": "cuda:0", "allocator": "caching"}]
    assert document["origins"] == [(0, 0, 0, 0), (1, 0, 0, 0)]
    assert document["unmet"] == [(2, 2**40, 1)]


@given(st.text())
def test_no_text_can_end_the_script_element_and_all_text_is_kept(text):
    script = as_script_text({"label": f"</script><!--{text}"})

    assert not set("<>&") & set(script)
    assert json.loads(script) == {"label": f"</script><!--{text}"}
