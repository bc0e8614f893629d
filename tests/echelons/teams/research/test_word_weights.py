"""Telling words: what a document is about, in words with confidences."""

from hypothesis import given
from hypothesis import strategies as st

from echelons.teams.research import Survey
from echelons.teams.research.survey import (
    MOST_DOCUMENT_WORDS,
    MOST_FOLDER_WORDS,
    build_profile,
    count_documents,
    merge_telling_words,
    select_telling_words,
)

OVENS = build_profile(
    "Ovens", ["Heating an oven"], "The oven heats. Ovens heat bread, bread, bread."
)
BREAD = build_profile("Bread", [], "Bread is baked in ovens, and eaten with cheese.")
BOATS = build_profile("Boats", [], "Boats float. A boat has a keel.")
KNOWN = count_documents([OVENS, BREAD, BOATS])


def test_words_of_the_title_tell_most_then_those_of_headings() -> None:
    found = build_profile("Kites", ["Flying"], "Kites. Flying. A kite flies, flying on a string.")
    told = select_telling_words(found, count_documents([found, BOATS]))

    assert list(told) == ["kite", "flying", "string"]
    assert told["kite"] == 1.0


def test_word_of_all_documents_weighs_less_than_word_of_few() -> None:
    both = count_documents([OVENS, BREAD])

    assert both.rarity("oven") < KNOWN.rarity("oven") < KNOWN.rarity("keel") == 1.0


def test_an_unknown_word_weighs_as_much_as_the_rarest_known_one() -> None:
    assert KNOWN.idf("unheard") == KNOWN.idf("keel")


def test_in_a_question_rare_words_weigh_less_and_unknown_ones_still_less() -> None:
    rare, usual, unknown = map(KNOWN.weigh_word, ("keel", "oven", "unheard"))

    assert 1 < rare / usual < KNOWN.idf("keel") / KNOWN.idf("oven")
    assert 0 < unknown < rare


def test_forms_of_a_word_are_one_word_spelled_as_it_is_most_often() -> None:
    told = select_telling_words(build_profile("", [], "A keel, two keels, three keels."), KNOWN)

    assert "keels" in told
    assert "keel" not in told


def test_addresses_digests_and_numbers_tell_nothing() -> None:
    told = select_telling_words(
        build_profile("", [], "see https://x.org/fc6a96e8abf3bd21 1234 5678 sha256 cheese"), KNOWN
    )

    assert set(told) <= {"see", "sha256", "cheese"}


def test_a_document_of_numbers_only_has_no_telling_words() -> None:
    assert (
        select_telling_words(
            build_profile("12", [], "1 2 3"), count_documents([build_profile("12", [], "1 2 3")])
        )
        == {}
    )


def test_a_folder_knows_the_best_words_of_what_is_in_it() -> None:
    assert merge_telling_words([{"oven": 0.4, "bread": 0.9}, {"oven": 0.7}]) == {
        "bread": 0.9,
        "oven": 0.7,
    }
    assert len(merge_telling_words([{f"w{i}": 0.5 for i in range(200)}])) == MOST_FOLDER_WORDS


@given(st.lists(st.text(max_size=300), min_size=1, max_size=5))
def test_confidences_of_any_text_lie_between_0_and_1_best_first(texts: list[str]) -> None:
    profiles = [build_profile(text[:20], [text[20:50]], text) for text in texts]
    known = count_documents(profiles)
    for each in profiles:
        values = list(select_telling_words(each, known).values())
        assert len(values) <= MOST_DOCUMENT_WORDS
        assert values == sorted(values, reverse=True)
        assert all(0 < value <= 1 for value in values)


def test_the_words_of_a_document_are_the_same_whatever_the_order_of_counting(
    surveyed: Survey,
) -> None:
    tides = surveyed.surveyed["sea/tides.md"]

    assert max(tides.capabilities.values()) == tides.capabilities["tides"]
