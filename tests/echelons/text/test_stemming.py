"""Words and stems: what makes two texts speak of the same thing."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from snowballstemmer.english_stemmer import EnglishStemmer  # type: ignore[import-untyped]

from echelons.text.stemming import STOPWORDS, count_words, extract_stems, extract_words, stem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("find_flights", ["find", "flights"]),
        ("bookTable", ["book", "table"]),
        ("HTMLParser", ["html", "parser"]),
        ("table-for-2", ["table", "for", "2"]),
        ("Zürich\N{RIGHT SINGLE QUOTATION MARK}s Café Ærø", ["zurich", "cafe", "aero"]),
        ("We don't, they've, I'd", ["we", "dont", "they", "i"]),
        ("L'Aquila", ["l", "aquila"]),
        ("sha256 B2B 747", ["sha256", "b2b", "747"]),
        ("東京 Москва", ["東京", "москва"]),
        ("OAuth for CMake on iPhone", ["oauth", "for", "cmake", "on", "iphone"]),
        ("  \n\t…!?", []),
    ],
)
def test_text_is_cut_into_plain_words(text: str, expected: list[str]) -> None:
    assert extract_words(text) == expected


def test_forms_of_a_word_share_a_stem() -> None:
    assert {stem("restaurant"), stem("restaurants")} == {"restaur"}
    assert stem("reservation") == stem("reserve")
    assert stem("flying") == stem("flies")


def test_stems_drop_stopwords_and_keep_the_order() -> None:
    assert extract_stems("Where can I sleep, and which museums are there?") == ["sleep", "museum"]


def test_an_endless_token_is_no_word_to_stem() -> None:
    token = "ab" * 50_000
    began = process_time()
    assert extract_stems(token) == [token]
    assert process_time() - began < 5


def test_threads_that_stem_at_once_get_the_same_stems() -> None:
    vocabulary = [f"{prefix}{ending}" for prefix in _prefixes() for ending in _ENDINGS]
    with ThreadPoolExecutor(8) as pool:
        at_once = list(pool.map(stem.__wrapped__, vocabulary * 4))
    assert at_once == [stem(word) for word in vocabulary] * 4


_ENDINGS = ("ing", "ed", "ational", "s", "ness", "fully")


def _prefixes() -> list[str]:
    return [a + b + "t" for a in "bcdfgl" for b in ("a", "ee", "o", "ui")]


@given(st.text())
@example("Ǽ ǿ")
def test_words_are_never_empty_and_cutting_again_changes_nothing(text: str) -> None:
    cut = extract_words(text)
    assert all(cut)
    assert extract_words(" ".join(cut)) == cut


@given(st.text())
def test_no_stopword_survives_among_the_stemmed_words(text: str) -> None:
    kept = [word for word in extract_words(text) if word not in STOPWORDS]
    assert extract_stems(text) == [stem(word) for word in kept]


@given(
    st.text(st.sampled_from("aBcN't sS9é\u0301\N{RIGHT SINGLE QUOTATION MARK}_ß\n"), max_size=60)
)
def test_words_are_counted_as_they_are_cut(text: str) -> None:
    assert count_words(text) == Counter(extract_words(text))


@given(st.text(st.sampled_from("abeinsy19é"), max_size=8))
def test_words_that_need_no_stemmer_are_what_it_would_make_of_them(word: str) -> None:
    assert stem(word) == EnglishStemmer().stemWord(word)
