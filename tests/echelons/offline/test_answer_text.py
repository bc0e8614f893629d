"""Composing: contributions word for word, the best first, and an honest end."""

from hypothesis import given
from hypothesis import strategies as st

from echelons.offline.planner import MAX_REASON_CHARACTERS, plan_reply
from echelons.offline.team import TeamIndex
from echelons.offline.tool_calls import Toolbox
from echelons.offline.turn import CallAnswer, PlannerTurn, TaskBrief, TaskContext


def compose_answer(answers: list[CallAnswer]) -> str:
    turn = PlannerTurn(TaskContext(TaskBrief("x")), ("call",), tuple(answers))
    return plan_reply(turn, Toolbox(TeamIndex(()))).text


def from_subordinate(
    name: str, text: str, sure: float | None = None, asked: str = "q"
) -> CallAnswer:
    return CallAnswer(name, asked, text, confidence=sure, delegated=True)


def test_contributions_stand_under_their_agents() -> None:
    answers = [from_subordinate("flights", "BA 548", asked="a"), from_subordinate("hotels", "Inn")]
    assert compose_answer(answers) == "flights:\nBA 548\n\nhotels:\nInn"


def test_the_only_answer_of_a_tool_stands_for_itself() -> None:
    assert compose_answer([CallAnswer("find_food", "", "Roscioli")]) == "Roscioli"


def test_answers_to_the_same_question_come_best_first() -> None:
    answers = [
        from_subordinate("a", "1", 0.3),
        from_subordinate("b", "2", None),
        from_subordinate("c", "3", 0.9),
        from_subordinate("d", "4", 0.5, asked="something else"),
        from_subordinate("e", "5", 0.9),
    ]
    lines = compose_answer(answers).splitlines()
    assert [line[0] for line in lines if line.endswith(":")] == ["c", "e", "a", "b", "d"]


def test_failures_stand_on_one_line_at_the_end() -> None:
    answers = [
        CallAnswer("events", "", "", "unable", reason="closed\ntoday"),
        from_subordinate("flights", "BA 548"),
        CallAnswer("tours", "", "  "),
    ]
    assert compose_answer(answers) == (
        "flights:\nBA 548\n\nNot available: events (closed today), tours (empty answer)"
    )


def test_open_question_keeps_its_asker_through_all_levels() -> None:
    first = CallAnswer("restaurants", "", "", "needs_input", reason="which restaurant?")
    assert compose_answer([first]) == "Open question: restaurants asks: which restaurant?"
    passed = CallAnswer("experiences", "", "", "needs_input", reason="restaurants asks: which one?")
    assert compose_answer([passed]) == "Open question: restaurants asks: which one?"


def test_partial_answer_is_marked_incomplete() -> None:
    part = CallAnswer("hotels", "", "Inn", "partial", reason="Rome only", delegated=True)
    assert compose_answer([part]) == "hotels:\nInn\n\nIncomplete: hotels (Rome only)"


def test_page_of_reasons_is_shortened() -> None:
    text = compose_answer([CallAnswer("a", "", "", "unable", reason="because " * 500)])
    assert MAX_REASON_CHARACTERS < len(text) < MAX_REASON_CHARACTERS + 40


@given(st.lists(st.builds(from_subordinate, st.just("x"), st.text(), st.none() | st.floats(0, 1))))
def test_contributions_are_never_changed(answers: list[CallAnswer]) -> None:
    text = compose_answer(answers)
    assert all(one.text in text for one in answers if one.text.strip())
