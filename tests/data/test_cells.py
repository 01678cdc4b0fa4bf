"""Cells of tables of text: which are numbers, their bits, and the text that follows from them."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedepm_fast.data._cells import Cells, number
from fedepm_fast.data._csv import Text
from fedepm_fast.data._decimals import decimals
from fedepm_fast.data._floats import floats, floats_of


@given(
    st.lists(
        st.floats().map(repr)
        | st.from_regex(r"[+-]?[0-9]{0,30}\.?[0-9]{1,30}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
        min_size=1,
    )
)
def test_arrow_reads_the_bits_that_python_reads(cells):
    pytest.importorskip("pyarrow.compute")
    expected = np.array(list(map(float, cells)))
    np.testing.assert_array_equal(floats(cells).view(np.int64), expected.view(np.int64))


def test_separators_alone_at_the_end_are_no_rows(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("a;y\n1;0\n;\n3;1\n;\n ;\n")
    text = Text(file, None, None, [])
    assert list(map(list, text.columns)) == [["1", "", "3"], ["0", "", "1"]]
    assert text.lines.tolist() == [2, 3, 4]
    file.write_text("a;y\n;\n")
    with pytest.raises(ValueError, match="has no rows below the names"):
        Text(file, None, None, [])


_DECIMAL = st.builds(
    lambda whole, places: format(Decimal(whole).scaleb(-places), "f"),
    st.integers(-(10**15) + 1, 10**15 - 1),
    st.integers(0, 14),
)


@given(
    st.lists(_DECIMAL, min_size=17, max_size=40),
    st.lists(
        st.sampled_from(
            ["", "NA", "1e-05", "007", "-", "1.", ".5", "1.2.3", "1-2", "+3", "9" * 16]
        ),
        max_size=1,
    ),
    st.data(),
)
def test_text_follows_from_decimals(cells, odd, data):
    for cell in odd:
        cells.insert(data.draw(st.integers(0, len(cells))), cell)
    values, how = decimals("\0".join(cells))
    regular = [i for i in range(len(cells)) if i not in how.odd]
    assert list(how.odd.values()) == odd and np.isnan(values[list(how.odd)]).all()
    expected = np.array([float(cells[i]) for i in regular])
    np.testing.assert_array_equal(values[regular].view(np.int64), expected.view(np.int64))
    assert how.text(values) == "\0".join(cells)
    wanted = data.draw(st.sampled_from(cells))
    assert how.written(values, wanted).tolist() == [cell == wanted for cell in cells]


def test_what_is_mostly_no_decimal_is_read_otherwise():
    assert decimals("1\0x\0" + "2") is None
    assert decimals("\u0661") is None
    assert decimals("") is None
    (value,), how = decimals("-0.0")
    assert np.signbit(value) and how.text(np.array([value])) == "-0.0"


def test_numbers_that_text_follows_from_are_not_written_to(tmp_path):
    column = Cells()
    column.append("1.0\0002.50")
    with pytest.raises(ValueError, match="read-only"):
        column.numbers[0] = 3.0
    assert list(column) == ["1.0", "2.50"]
    column.append("x")
    assert list(column) == ["1.0", "2.50", "x"] and column.read() is None


def test_markers_of_missing_cells_are_compared_as_text():
    column = Cells()
    cells = [*map(str, range(20)), "-99", "-99.0", "", "-0"]
    column.append("\0".join(cells))
    expected = [*range(20), np.nan, -99.0, np.nan, 0.0]
    found = column.read(na=frozenset(["-99", "x", "7.0"]))
    np.testing.assert_array_equal(found, expected)
    found = column.read(na=frozenset(["0"]), decimal=",")
    np.testing.assert_array_equal(found, [np.nan, *range(1, 20), -99.0, -99.0, np.nan, 0.0])


def test_brackets_and_underscores_are_no_numbers(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("x,y,label\n1,1_0,0\nnan(1),2,1\n")
    text = Text(file, True, None, [])
    assert [cells.numbers is None for cells in text.columns] == [True, True, False]


def test_quotes_may_begin_anywhere(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text('x,y\n1,a\n\n2,"b\nc"\n3,d\n')
    text = Text(file, None, None, [])
    assert list(text.columns[1]) == ["a", "b\nc", "d"]
    assert text.lines.tolist() == [2, 5, 6]
    file.write_text('x,y\n1,a\n2,"b\n3,d\n')
    with pytest.raises(ValueError, match="quotes that open in line 3"):
        Text(file, None, None, [])


def test_numbers_of_a_block_are_those_of_its_cells():
    cells = [" 1", "-2.5e3", "inf", "nan", "0.1 "]
    expected = np.array(list(map(float, cells)))
    np.testing.assert_array_equal(floats_of("\0".join(cells)), expected)
    np.testing.assert_array_equal(floats(cells), expected)
    assert floats([]).shape == (0,)
    with pytest.raises(ValueError, match="could not convert"):
        floats_of("1\0\0" + "2")


@given(st.lists(st.text("0123456789.-+e x\u00e9", max_size=9), min_size=1, max_size=9), st.data())
def test_cells_are_what_was_written(cells, data):
    cut = data.draw(st.integers(0, len(cells) - 1))
    column = Cells()
    column.append("\0".join(cells[cut:]), expected=2)
    if cut:
        column.append("\0".join(cells[:cut]))
    written = [*cells[cut:], *cells[:cut]]
    assert len(column) == len(cells) and list(column) == [cell.strip() for cell in written]
    column.prepend("0.5")
    assert list(column) == ["0.5", *(cell.strip() for cell in written)]
    values = [number(cell.strip()) for cell in written]
    if None in values:
        assert column.numbers is None
    else:
        np.testing.assert_array_equal(column.numbers, [0.5, *values])
