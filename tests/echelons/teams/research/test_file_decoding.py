"""Bytes become text, or a reason."""

import codecs
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons.teams.research.documents import decode_text


@pytest.mark.parametrize(
    "data",
    [
        "Café — 8 €".encode(),
        codecs.BOM_UTF8 + "Café — 8 €".encode(),
        codecs.BOM_UTF16_LE + "Café — 8 €".encode("utf-16-le"),
        codecs.BOM_UTF16_BE + "Café — 8 €".encode("utf-16-be"),
        codecs.BOM_UTF32_LE + "Café — 8 €".encode("utf-32-le"),
        codecs.BOM_UTF32_BE + "Café — 8 €".encode("utf-32-be"),
        "Café — 8 €".encode("cp1252"),
    ],
)
def test_every_common_encoding_gives_the_same_text(data: bytes) -> None:
    assert decode_text(data) == "Café — 8 €"


def test_latin_1_is_read_where_it_looks_like_text() -> None:
    assert decode_text("Überall müde Füße".encode("latin-1")) == "Überall müde Füße"


def test_line_ends_of_all_systems_become_line_feeds() -> None:
    assert decode_text(b"a\r\nb\rc\n\r\nd") == "a\nb\nc\n\nd"


@pytest.mark.parametrize(
    "data",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        bytes(range(1, 32)) * 20,
        zlib.compress(b"the same sentence again and again " * 200).replace(b"\0", b"\1"),
        random.Random(1).randbytes(400).replace(b"\0", b"\1"),
        "Привет, мир".encode("koi8-r"),
        "東京の天気".encode("shift-jis"),
        "ends inside a pair".encode("utf-16") + b"\x41",
    ],
)
def test_what_is_no_readable_text_says_so(data: bytes) -> None:
    with pytest.raises(match="binary"):
        decode_text(data)


def test_a_pdf_without_compression_is_named_as_what_it_is() -> None:
    with pytest.raises(match=r"PDF.*convert"):
        decode_text(b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\n")


def test_control_characters_never_reach_a_terminal() -> None:
    text = decode_text(b"page one\fpage \x1b[31mtwo\n" + b"harmless words " * 50)

    assert text.startswith("page one page \ufffd[31mtwo\n")


@given(st.binary(max_size=300))
def test_any_bytes_give_clean_text_or_a_reason(data: bytes) -> None:
    try:
        text = decode_text(data)
    except ValueError as error:
        assert str(error)
    else:
        assert "\r" not in text
        assert all(char in "\n\t" or ord(char) >= 32 for char in text)
        text.encode()  # raises where a lone surrogate got in


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1))
def test_text_in_utf_8_comes_back_unchanged(text: str) -> None:
    assert decode_text(codecs.BOM_UTF8 + text.encode()) == text
