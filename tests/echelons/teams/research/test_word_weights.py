"""Telling words: what a document is about, in words with confidences."""

from hypothesis import given
from hypothesis import strategies as st

from echelons.teams.research import Survey
from echelons.teams.research.word_weights import (
    OF_A_DOCUMENT,
    OF_A_FOLDER,
    merged,
    profile,
    telling,
    vocabulary,
)

OVENS = profile("Ovens", ["Heating an oven"], "The oven heats. Ovens heat bread, bread, bread.")
BREAD = profile("Bread", [], "Bread is baked in ovens, and eaten with cheese.")
BOATS = profile("Boats", [], "Boats float. A boat has a keel.")
KNOWN = vocabulary([OVENS, BREAD, BOATS])


def test_words_of_the_title_tell_most_then_those_of_headings() -> None:
    found = profile("Kites", ["Flying"], "Kites. Flying. A kite flies, flying on a string.")
    told = telling(found, vocabulary([found, BOATS]))

    assert list(told) == ["kite", "flying", "string"]
    assert told["kite"] == 1.0


def test_a_word_that_all_documents_have_tells_less_than_one_of_a_few() -> None:
    both = vocabulary([OVENS, BREAD])

    assert both.rarity("oven") < KNOWN.rarity("oven") < KNOWN.rarity("keel") == 1.0


def test_an_unknown_word_weighs_as_much_as_the_rarest_known_one() -> None:
    assert KNOWN.idf("unheard") == KNOWN.idf("keel")


def test_forms_of_a_word_are_one_word_spelled_as_it_is_most_often() -> None:
    told = telling(profile("", [], "A keel, two keels, three keels."), KNOWN)

    assert "keels" in told
    assert "keel" not in told


def test_addresses_digests_and_numbers_tell_nothing() -> None:
    told = telling(
        profile("", [], "see https://x.org/fc6a96e8abf3bd21 1234 5678 sha256 cheese"), KNOWN
    )

    assert set(told) <= {"see", "sha256", "cheese"}


def test_a_document_of_numbers_only_has_no_telling_words() -> None:
    assert telling(profile("12", [], "1 2 3"), vocabulary([profile("12", [], "1 2 3")])) == {}


def test_a_folder_knows_the_best_words_of_what_is_in_it() -> None:
    assert merged([{"oven": 0.4, "bread": 0.9}, {"oven": 0.7}]) == {"bread": 0.9, "oven": 0.7}
    assert len(merged([{f"w{i}": 0.5 for i in range(200)}])) == OF_A_FOLDER


@given(st.lists(st.text(max_size=300), min_size=1, max_size=5))
def test_confidences_of_any_text_lie_between_0_and_1_best_first(texts: list[str]) -> None:
    profiles = [profile(text[:20], [text[20:50]], text) for text in texts]
    known = vocabulary(profiles)
    for each in profiles:
        values = list(telling(each, known).values())
        assert len(values) <= OF_A_DOCUMENT
        assert values == sorted(values, reverse=True)
        assert all(0 < value <= 1 for value in values)


def test_the_words_of_a_document_are_the_same_whatever_the_order_of_counting(
    surveyed: Survey,
) -> None:
    tides = surveyed.readings["sea/tides.md"]

    assert max(tides.capabilities.values()) == tides.capabilities["tides"]
