"""What humans have answered a task, and where a question of ours stands among its questions.

LangGraph hands out answers to a task's interrupts by their order, out of a scratchpad that it
lends under private keys of the config; this is the one module that knows them. A question that
is not the tool's takes a place in that order, which must be passed over when the tool asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from echelons.effects.journal import Entry

SCRATCHPAD_KEY = "__pregel_scratchpad"
SEND_KEY = "__pregel_send"
RESUME_MAP_KEY = "__pregel_resume_map"
RESUME = "__resume__"
MISSING = object()
"""What stands for an answer that nobody has given; ``None`` may be one."""


class Scratchpad:
    """The answers that one task has been given so far.

    Args:
        config: The config of the task's node.
    """

    def __init__(self, config: RunnableConfig) -> None:
        given = config["configurable"]
        self._config = config
        self._pad = given[SCRATCHPAD_KEY]
        self._send = given[SEND_KEY]
        self._namespace = str(given["checkpoint_ns"])
        self._by_id = given.get(RESUME_MAP_KEY) or {}

    @property
    def heard(self) -> int:
        """How many answers there are."""
        return len(self._pad.resume)

    @property
    def answers(self) -> tuple[Any, ...]:
        """The answers, each at the place of its question."""
        return tuple(self._pad.resume)

    def restore(self, answers: Sequence[Any]) -> None:
        """Put back answers that were taken by a run that was cut short before it was stored."""
        if len(answers) > self.heard:
            self._pad.resume[:] = answers  # in place: LangGraph holds the list too

    def goes_on(self, entry: Entry) -> bool:
        """Return whether a suspended call has been answered, and goes past its question.

        Each answer anywhere in the tree runs every other waiting call again, up to its question.
        """
        answered = any(each in self._by_id for each in entry.waits_for)
        if answered or self.heard > entry.heard or self._loose() is not MISSING:
            return True
        # An answer that was taken back by a crash may have been given anew, and be another.
        return self.answers != entry.answers

    def answers_of(self, entry: Entry) -> tuple[Any, ...]:
        """Return the answers with which a suspended call goes on."""
        loose = self._loose()
        # It may be for a graph that the tool runs, which keeps its own.
        own = self.heard == entry.heard and self._id(entry.heard) in entry.waits_for
        return (*self.answers, loose) if own and loose is not MISSING else self.answers

    def answer(self, place: int) -> Any:
        """Return the answer to a question of ours, or ``MISSING``."""
        if self.heard > place:
            return self._pad.resume[place]
        loose = self._loose()
        if loose is not MISSING:
            # Taken, or the tool's next question would have it too.
            self._pad.get_null_resume(True)
            self._pad.resume.append(loose)
        return loose

    def forget(self, place: int) -> None:
        """Take an answer back that is none."""
        del self._pad.resume[place:]

    def ask(self, place: int, value: Any, schema: dict[str, Any]) -> GraphInterrupt:
        """Return the interrupt that asks a question of ours at a place, behind all answers."""
        if place:
            # Stored with the question, for LangGraph finds its place by counting the answers.
            self._send([(RESUME, list(self._pad.resume))])
        return GraphInterrupt((Interrupt(value, self._id(place), response_schema=schema),))

    def passing(self, ours: Sequence[int]) -> RunnableConfig:
        """Return the config with which a tool's own questions pass over the places of ours."""
        if not ours:
            return self._config
        count = self._pad.interrupt_counter

        def counter() -> int:
            place = int(count())
            while place in ours:
                # LangGraph stores the answers up to the last question, so this one too.
                self._send([(RESUME, list(self._pad.resume[: place + 1]))])
                place = int(count())
            return place

        pad = replace(self._pad, interrupt_counter=counter)
        configurable = {**self._config["configurable"], SCRATCHPAD_KEY: pad}
        return {**self._config, "configurable": configurable}

    def _loose(self) -> Any:
        """Return an answer that was given without saying to which question."""
        found = self._pad.get_null_resume(False)
        return MISSING if found is None else found

    def _id(self, place: int) -> str:
        # LangGraph makes a question's id of its task and the answers before it.
        return Interrupt.from_ns(
            None, f"{self._namespace}|{place}" if place else self._namespace
        ).id
