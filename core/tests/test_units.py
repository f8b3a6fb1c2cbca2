from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.units import MAX_BYTES, MemoryAmount, check_range, format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("1", 1),
        ("1 byte", 1),
        ("10 bytes", 10),
        ("7B", 7),
        ("2 GiB", 2**31),
        ("2gib", 2**31),
        ("512MB", 512 * 10**6),
        ("512 M", 512 * 10**6),
        ("1.5k", 1500),
        (".5 KiB", 512),
        ("1_000 k", 10**6),
        (" 3 TiB ", 3 * 2**40),
        ("1PiB", 2**50),
        ("2.3 GB", 2_300_000_000),
        ("9223372036854775807", MAX_BYTES),
    ],
)
def test_a_size_is_read_from_text(text, nbytes):
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", " ", "GiB", "12QB", "1,5 GB", "1.2.3", "-1", "1e3", "two", "1 Gi B", "_1", "1_"])
def test_what_is_no_size_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="is not a size: write a number and a unit, such as '2 GiB'"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["1.5", "0.1 KiB", "1.0005k"])
def test_a_part_of_a_byte_is_refused(text):
    with pytest.raises(ValueError, match="is not a whole number of bytes"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "8192 PiB", "9" * 400])
def test_a_size_above_the_largest_is_refused(text):
    with pytest.raises(ValueError, match="above the largest that can be asked for"):
        parse_bytes(text)


@given(st.integers(0, MAX_BYTES))
def test_every_size_is_read_as_itself(nbytes):
    assert parse_bytes(f"{nbytes} B") == nbytes


@given(st.integers(0, 10**9), st.integers(0, 999))
def test_a_decimal_part_is_read_exactly(whole, thousandths):
    assert parse_bytes(f"{whole}.{thousandths:03} GB") == whole * 10**9 + thousandths * 10**6


def test_a_negative_size_is_out_of_range():
    with pytest.raises(ValueError, match="cannot be negative: -1"):
        check_range(-1)


def test_the_largest_size_is_in_range():
    assert check_range(MAX_BYTES) == MAX_BYTES


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        (0.5, MemoryAmount(fraction=0.5)),
        (1, MemoryAmount(fraction=1.0)),
        (1.0, MemoryAmount(fraction=1.0)),
        ("0.5", MemoryAmount(fraction=0.5)),
        ("5e-1", MemoryAmount(fraction=0.5)),
        ("50%", MemoryAmount(fraction=0.5)),
        ("100 %", MemoryAmount(fraction=1.0)),
        ("0%", MemoryAmount(nbytes=0)),
        (0, MemoryAmount(nbytes=0)),
        (-3, MemoryAmount(nbytes=0)),
        (-0.5, MemoryAmount(nbytes=0)),
        ("-5", MemoryAmount(nbytes=0)),
        (2, MemoryAmount(nbytes=2)),
        (2.0, MemoryAmount(nbytes=2)),
        (MAX_BYTES, MemoryAmount(nbytes=MAX_BYTES)),
        ("9223372036854775807", MemoryAmount(nbytes=MAX_BYTES)),
        ("2 GiB", MemoryAmount(nbytes=2**31)),
        ("10 bytes", MemoryAmount(nbytes=10)),
        ("1e9", MemoryAmount(nbytes=10**9)),
        (np.float64(0.5), MemoryAmount(fraction=0.5)),
        (np.int64(4096), MemoryAmount(nbytes=4096)),
        (Decimal("0.5"), MemoryAmount(fraction=0.5)),
        (Fraction(1, 4), MemoryAmount(fraction=0.25)),
        (MemoryAmount(nbytes=5), MemoryAmount(nbytes=5)),
    ],
)
def test_an_amount_is_read_from_numbers_and_text(value, amount):
    assert MemoryAmount.parse(value) == amount


@pytest.mark.parametrize("value", [True, False, None, [1], b"1", 1j])
def test_what_is_neither_number_nor_text_is_no_amount(value):
    with pytest.raises(TypeError, match="an amount of memory is a number or text such as '2 GiB', not"):
        MemoryAmount.parse(value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (1.5, "1.5 is neither a fraction"),
        ("1.5", "1.5 is neither a fraction"),
        ("101%", "'101%' is more than 100 %"),
        (float("nan"), "is finite, not nan"),
        (float("inf"), "is finite, not inf"),
        (-float("inf"), "is finite, not -inf"),
        ("1e999", "is finite, not inf"),
        (2**63, "above the largest"),
        (10**400, "above the largest"),
        ("1e30", "above the largest"),
        (1e30, "above the largest"),
        ("12QB", "is not a size"),
        ("nan", "is not a size"),
        ("-1 GiB", "is not a size"),
        ("", "is not a size"),
    ],
)
def test_a_value_that_is_no_amount_is_refused_with_the_reason(value, problem):
    with pytest.raises(ValueError, match=problem):
        MemoryAmount.parse(value)


@given(st.integers(-(2**70), 2**70) | st.floats() | st.text())
def test_an_amount_is_read_or_refused_as_a_value_error(value):
    try:
        amount = MemoryAmount.parse(value)
    except ValueError:
        return
    assert 0 <= amount.resolve(2**40) <= MAX_BYTES


def test_an_amount_is_resolved_on_a_device():
    assert MemoryAmount(nbytes=5).resolve(100) == 5
    assert MemoryAmount(fraction=0.25).resolve(100) == 25
    assert MemoryAmount(fraction=1.0).resolve(150_109_880_320) == 150_109_880_320


@pytest.mark.parametrize("fields", [{}, {"nbytes": 1, "fraction": 0.5}])
def test_an_amount_is_either_bytes_or_a_fraction(fields):
    with pytest.raises(ValueError, match="either bytes or a fraction"):
        MemoryAmount(**fields)


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, float("nan")])
def test_a_fraction_is_above_zero_and_at_most_one(fraction):
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        MemoryAmount(fraction=fraction)


@pytest.mark.parametrize("nbytes", [-1, MAX_BYTES + 1])
def test_an_amount_in_bytes_is_in_range(nbytes):
    with pytest.raises(ValueError, match=r"cannot be negative|above the largest"):
        MemoryAmount(nbytes=nbytes)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (MemoryAmount(fraction=0.5), "50 % of the device"),
        (MemoryAmount(fraction=0.005), "0.5 % of the device"),
        (MemoryAmount(nbytes=2**31), "2 GiB"),
    ],
)
def test_an_amount_reads_as_people_say_it(amount, text):
    assert str(amount) == text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1_023_897, "1000 KiB"),
        (2**20 - 1, "1 MiB"),
        (1_072_693_248, "1023 MiB"),
        (150_109_880_320, "140 GiB"),
        (2**50, "1 PiB"),
        (MAX_BYTES, "8 EiB"),
        (-1536, "-1.5 KiB"),
        (2**80, "1048576 EiB"),
    ],
)
def test_a_size_is_printed_with_three_significant_digits(nbytes, text):
    assert format_bytes(nbytes) == text


@given(st.integers(0, MAX_BYTES))
def test_a_printed_size_is_within_half_a_percent_and_needs_no_exponent(nbytes):
    number, unit = format_bytes(nbytes).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB").index(unit)
    assert "e" not in number
    assert abs(float(number) * factor - nbytes) <= 0.005 * nbytes
