"""Puts cases of the reference on: real trees whose agents do what the reference says they do.

Many cases share one tree, one session and one turn: agents read in their brief which case it is.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from echelons import Agent, Session, SqliteCheckpointer
from echelons.checkpoints.coordination.candidates import TreeBreakers
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationResponse
from echelons.guards.circuit_breaker import AttemptOutcome, BreakerPolicy
from echelons.guards.limits import with_deadline
from echelons.nodes import attempt
from echelons.routing.matcher import Match, Profile
from echelons.runtime.run_events import RunEvent, RunEventKind
from echelons.testing import Call, Reply, ScriptedModel, report
from tests.scenarios.reference import Answer, Asking, Case, Deed, Post, Reference, ways

PIECE = re.compile(r"<[^>]*>|timeout|not run|circuit_open|stopped|no_candidate|budget|quorum")
"""What of a text counts: the words that only one agent says, and the kinds of reasons."""
PATIENT = BreakerPolicy(failures=10**6, seconds=3600, intensity=None)
"""However often somebody fails, it is asked again."""
TOPICS = ("bread", "iron", "glass")
"""What the parts of a task are about that is taken apart."""


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
        message: The answer to the root's call.
        response: The same as a response.
        asked: How often each agent began to think.
    """

    message: ToolMessage
    response: DelegationResponse
    asked: Counter[str]


def task_of(case: Case, place: int) -> str:
    """Return the task of a request; it tells who reads it which case and which request it is."""
    if not case.asking.splits:
        needs = f" needs {' and '.join(case.needs)}" if case.needs else ""
        return f"Task {place} of case {case.number}{needs}"
    parts = [f"make the {TOPICS[n]} of case {case.number}" for n in range(len(case.fits))]
    return ", and ".join(parts)


def calls_of(case: Case, how: Asking, number: int) -> Call:
    """Return the call with which a superior asks."""
    requests = [
        {"message": task_of(case, place), "subordinate": whom or None, "reset": True}
        for place, whom in enumerate(how.whom)
    ]
    if how.splits or not how.join:
        return Call("call_subordinate", requests[0], id=f"case-{number}")
    more = {"n": how.n} if how.join == "quorum" else {}
    args = {"requests": requests, "join": how.join, **more}
    return Call("delegate_many", args, id=f"case-{number}")


@dataclass
class Table:
    """A matcher that has looked up how well everybody fits."""

    cases: Mapping[int, Case]
    threshold: float = 0.0
    profiles: Sequence[Profile] = ()

    def prepare(self, profiles: Sequence[Profile]) -> Table:
        return Table(self.cases, self.threshold, profiles)

    def match(self, task: str) -> Mapping[int, Match]:
        case = self.cases[case_of(task)]
        numbered = re.search(r"Task (\d+)", task)
        places = [n for n in range(len(case.fits)) if TOPICS[n] in task]
        fits = {
            name: fit
            for place in ([int(numbered[1])] if numbered else places)
            for name, fit in case.fits[place].items()
        }
        return {
            place: Match(fits[each.name] / 100, each.confidence)
            for place, each in enumerate(self.profiles)
            if each.name in fits
        }

    async def amatch(self, task: str) -> Mapping[int, Match]:
        return self.match(task)

    def reasons(self, task: str, place: int) -> Sequence[str]:
        return ()


def case_of(text: str) -> int:
    """Return which case a task belongs to."""
    found = re.search(r"case (\d+)", text)
    assert found, text
    return int(found[1])


@dataclass
class Stage:
    """A tree in which cases are put on.

    Attributes:
        root: The tree.
        cases: The cases; all agree on whose circuits are open, and on how is explored.
        sync: Whether it runs in threads; else in an event loop.
        skills: What agents can do, where a task says what it needs.
    """

    root: Post
    cases: Sequence[Case]
    sync: bool
    skills: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_number = {each.number: each for each in self.cases}
        self._late: set[str] = set()
        self._above: dict[str, str] = {}
        self._races: dict[int, _Race] = {}
        self._model: ScriptedModel = ScriptedModel([])

    @property
    def is_racing(self) -> bool:
        """Whether the cases are played one after the other, each in a message of its own."""
        return any(each.asking.enough for each in self.cases)

    def outcomes(self) -> list[Outcome]:
        """Play all cases in one message, or one after the other where they are races."""
        steps = [calls_of(each, each.asking, each.number) for each in self.cases]
        replies = [*steps, "done"] if self.is_racing else [Reply(calls=steps), "done"]
        with SqliteCheckpointer(":memory:") as saver, self._clockwork():
            self._open(saver)
            head = self._head(replies)
            messages = self._race(head, saver) if self.is_racing else self._run(head, saver)
        answers = [each for each in messages if isinstance(each, ToolMessage)]
        by_call = {each.tool_call_id: each for each in answers}
        assert len(by_call) == len(answers) == len(self.cases)
        asked = self._asked()
        return [
            Outcome(message, DelegationResponse.load(message.artifact), asked[each.number])
            for each in self.cases
            for message in [by_call[f"case-{each.number}"]]
        ]

    def _head(self, replies: Sequence[Any]) -> Agent:
        names = [each.name for each in _everybody(self.root)]
        scripts: dict[str, Any] = {name: self._script(name) for name in names}
        self._model = ScriptedModel({**scripts, self.root.name: replies})
        rules = DelegationPolicy(
            exploring="parallel" if self.cases[0].parallel else "ordered",
            splitting=self.cases[0].asking.splits,
            matcher=Table(self._by_number),
            breaker=PATIENT,
        )
        return self._agent(self.root, rules)

    def _run(self, head: Agent, saver: SqliteCheckpointer) -> Sequence[Any]:
        graph = head.compile(saver)
        given: Any = {"messages": [("user", "go")]}
        config: Any = {"configurable": {"thread_id": "play"}}
        run = graph.invoke if self.sync else lambda *args: asyncio.run(graph.ainvoke(*args))
        return list(run(given, config)["messages"])

    def _agent(self, post: Post, rules: DelegationPolicy | None = None) -> Agent:
        skills = self.skills.get(post.name, ("craft",))
        return Agent(
            post.name,
            model=self._model if rules else None,
            subordinates=[self._agent(each) for each in post.below],
            capabilities=dict.fromkeys(skills, post.sure / 100),
            delegation=rules,
        )

    # What agents do.

    def _script(self, name: str) -> Callable[[Sequence[BaseMessage]], Any]:
        def next_step(messages: Sequence[BaseMessage]) -> Any:
            brief = next(each for each in reversed(messages) if isinstance(each, HumanMessage))
            case = self._by_number[case_of(str(brief.text))]
            deed = case.deeds[name]
            if deed.asks and messages[-1] is brief:
                return calls_of(case, deed.asks, case.number)
            if deed.asks:
                assert isinstance(messages[-1], ToolMessage)
                return repeated(DelegationResponse.load(messages[-1].artifact))
            if case.number in self._races:
                return self._in_turn(case, name, deed, messages)
            return self._step(case, name, deed, messages)

        return next_step

    def _step(self, case: Case, name: str, deed: Deed, messages: Sequence[BaseMessage]) -> Any:
        if deed.does == "late":
            self._waste_time(messages)
            return Call("no_such_tool")
        if deed.does == "failed":
            return RuntimeError(f"<{name} cannot {case.number}>")
        return said_by(name, case, deed)

    def _in_turn(self, case: Case, name: str, deed: Deed, messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type != "human":  # it has had its turn
            return self._step(case, name, deed, messages)
        gate = self._races[case.number].arrive(name)
        if self.sync:
            assert gate.wait(120)
            return self._step(case, name, deed, messages)

        async def wait() -> Any:
            await gate.wait()
            return self._step(case, name, deed, messages)

        return wait()

    # Time: everybody has a clock of its own, which stands still until it is late.

    @contextmanager
    def _clockwork(self) -> Iterator[None]:
        def own_time(config: Any, agent: str, seconds: float | None, *_: Any) -> RunnableConfig:
            thread = config["metadata"]["agent_thread_id"]
            self._above[thread] = config["metadata"]["superior_thread_id"]
            return with_deadline(
                config, agent, seconds, lambda: 1e4 if thread in self._late else 0.0
            )

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attempt, "with_deadline", own_time)
            patch.setattr(attempt, "monotonic", lambda: 0.0)
            yield

    def _waste_time(self, messages: Sequence[BaseMessage]) -> None:
        own = next(each for each in self._model.calls if each.messages is messages)
        thread = own.thread_id or ""
        while thread in self._above:
            self._late.add(thread)
            thread = self._above[thread]

    def _open(self, saver: SqliteCheckpointer) -> None:
        """Let those fail before the first case whose circuits are open."""
        breakers = TreeBreakers(saver.ledger, rules=PATIENT.model_copy(update={"failures": 1}))
        posts = [(self.root.name, self.root)]
        for path, post in posts:
            posts += [(f"{path}/{each.name}", each) for each in post.below]
            if post.name in self.cases[0].open:
                breakers.note(path, breakers.admit(path), AttemptOutcome.FAILED)

    # Races: who is asked ends when it is its turn.

    def _race(self, head: Agent, saver: SqliteCheckpointer) -> Sequence[Any]:
        session = Session(head, saver)
        self._races = {each.number: _Race(self.root, each, self.sync) for each in self.cases}
        ahead = iter([*self._races.values()])
        now = next(ahead, None)

        def tell(event: RunEvent) -> None:
            nonlocal now
            levels = event.path.count("/")
            if event.kind is RunEventKind.RESPONSE and levels == 1 and now:
                now.ended()
            elif event.kind is RunEventKind.TOOL_RESULT and levels == 0:
                now = next(ahead, None)

        self._drive(session, tell)
        return session.thread_store.get(session.thread_id).messages

    def _drive(self, session: Session, tell: Callable[[RunEvent], None]) -> None:
        if self.sync:
            for event in session.send("go"):
                tell(event)
            return

        async def go() -> None:
            async for event in await session.asend("go"):
                tell(event)

        async def in_time(going: Awaitable[None]) -> None:
            await asyncio.wait_for(going, 60)

        asyncio.run(in_time(go()))

    def _asked(self) -> dict[int, Counter[str]]:
        asked: dict[int, Counter[str]] = {each.number: Counter() for each in self.cases}
        for each in self._model.calls:
            brief = each.messages[-1]
            if isinstance(brief, HumanMessage) and each.agent != self.root.name:
                asked[case_of(str(brief.text))][str(each.agent)] += 1
        return asked


class _Race:
    """Lets those who race come to an end one after the other, once all have begun."""

    def __init__(self, root: Post, case: Case, sync: bool) -> None:
        self._sync = sync
        self._enough = case.asking.enough
        found = [way_of(root, case, place) for place in case.asking.order]
        names = [way[-1].name for way in found if not _is_open(way, case)]
        self._wins = [case.deeds[name].does in ("says", "fulfilled") for name in names]
        self._gates: dict[str, Any] = {
            name: threading.Event() if sync else asyncio.Event() for name in names
        }
        self._lock = threading.Lock()
        # Those who begin, and those whose circuits are open: they end at once.
        self._awaited = len(found)
        self._at_once = len(found) - len(names)
        self._ended = 0

    def arrive(self, name: str) -> Any:
        """Note that somebody has begun; return what opens when it is its turn."""
        self._one_more()
        return self._gates[name]

    def ended(self) -> None:
        """Note that somebody has ended."""
        if self._at_once:
            self._at_once -= 1
            self._one_more()
            return
        self._ended += 1
        if sum(self._wins[: self._ended]) < self._enough:
            self._let(self._ended)
        elif self._sync:
            # In a thread nothing is cut short; in an event loop they must not wait in vain.
            for place in range(self._ended, len(self._gates)):
                self._let(place)

    def _one_more(self) -> None:
        with self._lock:
            self._awaited -= 1
            if not self._awaited:
                self._let(0)

    def _let(self, place: int) -> None:
        for gate in [*self._gates.values()][place : place + 1]:
            gate.set()


def way_of(root: Post, case: Case, place: int) -> list[Post]:
    """Return the way to the first who is asked."""
    return ways(case, root, case.asking, place)[0]


def _is_open(way: Sequence[Post], case: Case) -> bool:
    return any(each.name in case.open for each in way)


def said_by(name: str, case: Case, deed: Deed) -> Any:
    """Return the step of a model by which an agent ends as the reference has it end."""
    did, cannot = f"<{name} did {case.number}>", f"<{name} cannot {case.number}>"
    sure = deed.sure / 100
    return {
        "says": did,
        "fulfilled": report("fulfilled", did, confidence=sure),
        "partial": report("partial", did, confidence=sure, reason=f"limited: {cannot}"),
        "spent": report("partial", did, confidence=sure, reason=f"budget: {cannot}"),
        "needs_input": report("needs_input", f"<{name} asks {case.number}>", confidence=sure),
        "unable": report("unable", "", reason=cannot),
    }[deed.does]


def repeated(told: DelegationResponse) -> Call:
    """Return the report of a superior that repeats what it was told."""
    return report(str(told.status), told.result, confidence=told.confidence, reason=told.reason)


def _everybody(post: Post) -> Iterator[Post]:
    for each in post.below:
        yield each
        yield from _everybody(each)


# The comparison.


def pieces(text: str) -> tuple[str, ...]:
    """Return what of a text counts."""
    return tuple(PIECE.findall(text))


def assert_agreement(stage: Stage) -> None:
    """Play the cases of a stage and compare what comes of them with the reference."""
    # All cases are in one message, unless they are races.
    at_work = {name for case in stage.cases for name in case.asking.whom}
    for case, outcome in zip(stage.cases, stage.outcomes(), strict=True):
        own = None if stage.is_racing else at_work
        reference = Reference(stage.root, case, stage.sync, own)
        expected, response = reference.answer, outcome.response
        found = answer_of(response, expected)
        if case.asking.enough:  # who is stopped has cost nothing, or one call
            expected, found = uncounted(expected), uncounted(found)
        shown = {*expected.says, *expected.why} & {*pieces(str(outcome.message.content))}
        assert found == expected, f"{case}\n\n{found}\n\n{expected}"
        assert outcome.asked == reference.asked, case
        assert shown == {*expected.says, *expected.why}, case
        unable = expected.status == "unable"
        assert (outcome.message.status == "error") is unable, case
        assert outcome.message.additional_kwargs.get("unavailable", False) is unable, case


def uncounted(answer: Answer) -> Answer:
    """Return an answer without what it and those below it have cost."""
    return replace(answer, calls=0, below=tuple(map(uncounted, answer.below)))


def answer_of(response: DelegationResponse, expected: Answer) -> Answer:
    """Return a response in the terms of the reference, as far as that says anything of it."""
    same_length = len(response.subordinate_responses) == len(expected.below)
    below = expected.below if same_length else [expected] * len(response.subordinate_responses)
    return Answer(
        str(response.status),
        response.agent,
        response.path.parts if expected.path else (),
        pieces(response.result),
        pieces(response.reason),
        None if expected.sure is None else round(response.confidence * 100),
        tuple(pieces(each) for each in response.partial_results),
        # The results of those below are compared in `test_nested_results`.
        tuple(
            replace(answer_of(answer, lower), says=())
            for answer, lower in zip(response.subordinate_responses, below, strict=True)
        ),
        expected.spent,
        expected.calls if expected.calls is None else response.usage.model_calls,
    )
