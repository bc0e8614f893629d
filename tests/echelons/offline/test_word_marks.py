"""What is wished: refusals, things done and things said in passing are told apart."""

import pytest

from echelons.offline.words import TokenizedText, mark_requested


def select(text: str, *, requested: bool) -> set[str]:
    reading = TokenizedText(text)
    marked = zip(reading.tokens, mark_requested(reading), strict=True)
    return {token.word for token, wanted in marked if wanted is requested}


@pytest.mark.parametrize(
    ("text", "refused", "wished"),
    [
        ("We already have our tickets and rooms, just find food", "tickets rooms", "food"),
        ("A trip without flights", "flights", "trip"),
        ("No hotels, museums please", "hotels", "museums"),
        ("Everything except hotels and flights", "hotels flights", "everything"),
        ("Flights are already booked, find restaurants", "flights", "restaurants"),
        ("Rome with hotels already booked", "hotels", "rome"),
        ("I've booked the hotel and need a flight", "hotel", "flight"),
        ("I have a meeting in Rome and need a hotel", "meeting", "hotel"),
        ("since we already have rooms find us restaurants", "rooms", "restaurants"),
        ("The hotel is sorted; what concerts are on?", "hotel", "concerts"),
        ("museums instead of concerts", "concerts", "museums"),
        ("Forget about the hotels; tours!", "hotels", "tours"),
        ("Hotels: booked. Concerts?", "hotels", "concerts"),
        ("no museums and no tours but food", "museums tours", "food"),
        ("I don't eat meat, where can we have lunch?", "meat", "lunch"),
        ("Our flights are taken care of; museums?", "flights", "museums"),
    ],
)
def test_refused_or_settled_words_are_not_requested(text: str, refused: str, wished: str) -> None:
    assert set(refused.split()) <= select(text, requested=False)
    assert set(wished.split()) <= select(text, requested=True)


@pytest.mark.parametrize(
    ("text", "wished"),
    [
        ("We don't want to miss the opera", "opera"),
        ("Don't forget the hotel", "hotel"),
        ("We have no hotel yet", "hotel"),
        ("We haven't booked a hotel yet", "hotel"),
        ("We need a table booked", "table"),
        ("Not only hotels but also flights", "hotels flights"),
        ("No later than 5 pm flights", "flights"),
        ("Where can we have dinner?", "dinner"),
        ("Do you have hotels?", "hotels"),
        ("We have three days and love museums", "museums"),
        ("I have to fly to Rome", "fly"),
        ("Nothing but museums", "museums"),
        ("No, just hotels", "hotels"),
        ("I'm looking for hotels", "hotels"),
        ("Hotels? No idea yet.", "hotels"),
        ("My laptop is broken", "laptop"),
    ],
)
def test_a_wish_that_sounds_like_a_refusal_is_a_wish(text: str, wished: str) -> None:
    assert set(wished.split()) <= select(text, requested=True)


def test_the_verb_show_is_no_performance() -> None:
    assert "show" in select("Show me flights", requested=False)
    assert "shows" in select("Shows in London", requested=True)
