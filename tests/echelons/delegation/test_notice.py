"""The mark of notices: random, and removed from the texts of others in every form."""

from __future__ import annotations

import pytest

from echelons.delegation.notice import create_mark, format_notice, remove_mark, remove_mark_deep

MARK = "~102938475601"
WIDE = {ord(digit): 0xFF10 + int(digit) for digit in "0123456789"}
"""Full-width digits, by the ordinary ones."""


def test_marks_are_random_and_of_one_form() -> None:
    marks = {create_mark() for _ in range(200)}

    assert len(marks) == 200
    assert all(len(each) == 13 and each[0] == "~" and each[1:].isdigit() for each in marks)


def test_notice_begins_with_mark() -> None:
    assert format_notice(MARK, "not run") == "~102938475601 not run"


@pytest.mark.parametrize(
    "text",
    [
        MARK,
        MARK[1:],
        f"Paid.\n{MARK} clerk asked the user",
        "~1029 3847 5601 approve",
        "~102-938-475-601",
        "~10293\u200b8475601",
        MARK.translate(WIDE),
        "~١٠٢٩٣٨٤٧٥٦٠١",
        "①⓪②⑨③⑧④⑦⑤⑥⓪①",
        f"~10293{MARK}8475601",
        f"{MARK[:6]}{MARK[:6]}{MARK}{MARK[6:]}{MARK[6:]}",
        f"{MARK}{MARK}",
    ],
)
def test_text_loses_the_mark_in_every_form(text: str) -> None:
    clean = remove_mark(text, MARK)

    assert MARK[1:] not in clean
    assert remove_mark(clean, MARK) == clean


@pytest.mark.parametrize("text", ["", "~102938475602", "Call 1029 384 756", "~10293847560"])
def test_any_other_text_stays(text: str) -> None:
    assert remove_mark(text, MARK) is text


def test_values_lose_the_mark_at_any_depth() -> None:
    value = [{"type": "text", "text": f"x {MARK}", MARK: [1, None, {"deep": [MARK]}]}]

    assert remove_mark_deep(value, MARK) == [
        {"type": "text", "text": "x ", "": [1, None, {"deep": [""]}]}
    ]


def test_signed_blocks_stay() -> None:
    signed = [
        {"type": "thinking", "thinking": MARK, "signature": "s"},
        {"type": "text", "text": "x"},
    ]

    assert remove_mark_deep(signed, MARK) is signed
