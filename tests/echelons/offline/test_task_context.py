"""The brief: what a superior adds below a task is read back by the next level."""

from hypothesis import given
from hypothesis import strategies as st

from echelons.offline.turn import MAX_EARLIER_CHARACTERS, TaskBrief

words = st.lists(st.from_regex(r"[a-z]{1,9}( [a-z]{1,9})?", fullmatch=True), max_size=4)
tasks = st.text().filter(lambda text: "\n" not in text)


@given(tasks, words, words)
def test_a_brief_reads_back_as_it_was(task: str, part: list[str], earlier: list[str]) -> None:
    brief = TaskBrief(task, tuple(part), " ".join(earlier))
    assert TaskBrief.from_text(str(brief)) == brief


@given(st.text())
def test_a_plain_text_is_a_task(text: str) -> None:
    if "Your part: " not in text and "Earlier: " not in text:
        assert TaskBrief.from_text(text) == TaskBrief(text)


def test_earlier_message_is_one_line_of_limited_length() -> None:
    written = str(TaskBrief("and hotels there?", earlier="fly\nto Rome " * 1000))
    assert written.count("\n") == 1
    assert len(written) < MAX_EARLIER_CHARACTERS + 100
