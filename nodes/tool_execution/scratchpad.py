"""The answers to a task's interrupts, and the place of our own question among them.

LangGraph assigns answers to a task's interrupts by their order, from a scratchpad that it puts
under private keys of the config. A question of ours, not of the
tool, takes a place in that order, which must be skipped when the tool asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import RESUME
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from echelons.delegation.effects import CallQuestion, JournalEntry
from echelons.langgraph_internals import RESUME_MAP_KEY, SCRATCHPAD_KEY, SEND_KEY
from echelons.run_context import get_context

MISSING = object()
"""Stands for a missing answer, as `None` may be an answer."""


def peek_first_answer(config: RunnableConfig) -> Any:
    """Return the first answer that a task has received by its question's id, or `MISSING`."""
    pad, first = config["configurable"].get(SCRATCHPAD_KEY), get_context(config).first_place
    return pad.resume[first] if pad and len(pad.resume) > first else MISSING


class AnswerPlaces:
    """Counts the places of a task's answers, where wraps around its call may ask, too.

    LangGraph counts the questions that are asked again; those of an entry that is not run again,
    but repeated from the journal, are skipped. It is what LangGraph asks for the next place.

    Attributes:
        first: The first place of an entry.
        used: The places that have been used so far.
    """

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.used = first

    def __call__(self) -> int:
        """Return the next place."""
        self.used += 1
        return self.used - 1

    def begin_entry(self) -> AnswerPlaces:
        """Return the places of an entry that begins now."""
        return AnswerPlaces(self.used)

    def end_entry(self, entry: AnswerPlaces) -> None:
        """Skip the places of an entry that has ended."""
        self.used = max(self.used, entry.used)

    def note_answers(self, count: int) -> None:
        """Note how many answers an entry has had."""
        self.used = max(self.used, self.first + count)


class Scratchpad:
    """The answers that one task has received so far, read from the config of its node.

    Places count from the first that is not of something around it, such as a middleware.
    """

    def __init__(self, config: RunnableConfig) -> None:
        configurable = config["configurable"]
        self._first = get_context(config).first_place
        self._config = config
        self._pad = configurable[SCRATCHPAD_KEY]
        self._send = configurable[SEND_KEY]
        self._namespace = str(configurable["checkpoint_ns"])
        self._by_id = configurable.get(RESUME_MAP_KEY) or {}

    @property
    def answer_count(self) -> int:
        """Number of answers."""
        return max(0, len(self._pad.resume) - self._first)

    @property
    def answers(self) -> tuple[Any, ...]:
        """The answers, in the order of their questions."""
        return tuple(self._pad.resume[self._first :])

    def restore_answers(self, answers: Sequence[Any]) -> None:
        """Put back answers that an interrupted run had consumed but not stored."""
        if len(answers) > self.answer_count:
            self._pad.resume[self._first :] = answers  # in place: LangGraph holds the list too

    def is_answered(self, entry: JournalEntry) -> bool:
        """Return whether a suspended call has its answer, and can go past its question.

        Any answer in the tree runs every other waiting call again, up to its question.
        """
        answered = any(question_id in self._by_id for question_id in entry.waits_for)
        if answered or self.answer_count > entry.heard or self._peek_unaddressed() is not MISSING:
            return True
        # An answer that a crash undid may have been given again, with another value.
        return self.answers != entry.answers

    def collect_answers(self, entry: JournalEntry) -> tuple[Any, ...]:
        """Return the answers with which a suspended call goes on."""
        loose = self._peek_unaddressed()
        # It may be for a graph that the tool runs, which has a scratchpad of its own.
        is_ours = (
            self.answer_count == entry.heard
            and self.build_interrupt_id(entry.heard) in entry.waits_for
        )
        return (*self.answers, loose) if is_ours and loose is not MISSING else self.answers

    def find_inner_answer(self, question: CallQuestion) -> Any:
        """Return the answer to a question of a graph that the tool runs, or `MISSING`."""
        if question.answer is not None:
            return MISSING
        return self._by_id.get(question.id, self._peek_unaddressed())

    def take_answer(self, place: int) -> Any:
        """Return the answer to our question at a place, or `MISSING`."""
        if self.answer_count > place:
            return self._pad.resume[self._first + place]
        # Consumed, or the next question would get it too; a peek would also return what a question
        # above has consumed.
        loose = self._pad.get_null_resume(True)
        if loose is None:
            return MISSING
        self._pad.resume.append(loose)
        return loose

    def set_first_answer(self, answer: Any) -> None:
        """Replace the first answer, or take its place for a question that is not asked."""
        self._pad.resume[self._first : self._first + 1] = [answer]

    def note_answers(self) -> None:
        """Have the answers stored with the task, whose graph may ask questions of its own."""
        if self._pad.resume:
            self._send([(RESUME, list(self._pad.resume))])

    def discard_answers(self, place: int) -> None:
        """Discard the answers from a place on, as they are invalid."""
        del self._pad.resume[self._first + place :]

    def build_interrupt(self, place: int, value: Any, schema: dict[str, Any]) -> GraphInterrupt:
        """Return the interrupt that asks our question at a place after all answers."""
        if self._first + place:
            # Stored with the question, as LangGraph finds its place by counting the answers.
            self._send([(RESUME, list(self._pad.resume))])
        return GraphInterrupt(
            (Interrupt(value, self.build_interrupt_id(place), response_schema=schema),)
        )

    def skip_places(self, ours: Sequence[int]) -> RunnableConfig:
        """Return a config in which the tool's own questions skip the places of ours."""
        if not ours:
            return self._config
        count = self._pad.interrupt_counter

        def counter() -> int:
            place = int(count())
            while place - self._first in ours:
                # LangGraph stores the answers up to the last question, so this one too.
                self._send([(RESUME, list(self._pad.resume[: place + 1]))])
                place = int(count())
            return place

        pad = replace(self._pad, interrupt_counter=counter)
        configurable = {**self._config["configurable"], SCRATCHPAD_KEY: pad}
        return {**self._config, "configurable": configurable}

    def _peek_unaddressed(self) -> Any:
        """Return an answer without the id of its question, or `MISSING`."""
        answer = self._pad.get_null_resume(False)
        return MISSING if answer is None else answer

    def build_interrupt_id(self, place: int) -> str:
        """Return the id of the question of the task at a place."""
        # LangGraph makes a question's id of its task and the answers before it.
        place += self._first
        return Interrupt.from_ns(
            None, f"{self._namespace}|{place}" if place else self._namespace
        ).id
