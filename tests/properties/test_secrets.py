"""A secret in an exception is found nowhere: not in the file, the log, an event, or a message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage
from langchain_core.tools import ToolException
from langgraph.graph import END, START, MessagesState, StateGraph

from echelons import Agent, RunEvent, Session
from echelons.testing import Call, ScriptedModel, delegate
from tests.proof import sample

CORE = "hUnter2" * 6
"""The part that all secrets have in common, and that nothing else has."""
SECRETS = (
    f"sk-proj-{CORE}",
    f"Authorization: Bearer {CORE}",
    f"password={CORE}",
    f"{{'api_key': '{CORE}'}}",
    f'{{"client_secret": "a {CORE}"}}',
    f"https://me:{CORE}@example.com/x",
    f"ghp_{CORE}",
    f"AIza{CORE}",
    f"eyJ{CORE}.{CORE}.{CORE}",
    f"-----BEGIN PRIVATE KEY-----\n{CORE}\n{CORE}\n-----END PRIVATE KEY-----",
)
LEVELS = ("head", "guide", "scout")
PLACES = ("message", "second line", "args", "cause", "context", "note", "group", "group in group")
KINDS = ("tool", "tool exception", "model", "function", "graph")


def raise_with(secret: str, place: str, kind: type[Exception]) -> None:
    """Raise an exception with a secret in some place."""
    if place == "message":
        raise kind(f"it failed: {secret}")
    if place == "second line":
        raise kind(f"it failed\n{secret}")
    if place == "args":
        raise kind("it failed", {"sent": [secret]}, secret.encode())
    if place == "cause":
        raise kind("it failed") from ValueError(secret)
    if place == "context":
        try:
            raise ValueError(secret)
        except ValueError:
            raise kind("it failed")  # noqa: B904
    if place == "note":
        error = kind("it failed")
        error.add_note(secret)
        raise error
    inner: Exception = ValueError(secret)
    if place == "group in group":
        inner = ExceptionGroup(f"inner {secret}", [inner, OSError(2, secret)])
    raise ExceptionGroup("outer", [KeyError("no"), inner])


def build_team(level: str, what: str, secret: str, place: str) -> Agent:
    """Return a team of three levels, of which something fails at one."""

    def boom() -> str:
        """Fail."""
        raise_with(secret, place, ToolException if what == "tool exception" else ValueError)
        return ""

    def fail(task: str) -> str:
        """Fail at a task."""
        return boom()

    def node(state: Any) -> Any:
        return boom()

    builder = StateGraph(MessagesState)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    foreign = builder.compile(name="foreign")

    def reply(agent: str, messages: Sequence[BaseMessage]) -> Any:
        below = LEVELS[LEVELS.index(agent) + 1 :]
        calls = [delegate(below[0], "go")] if below else []
        if agent == level:
            calls += [Call("boom")] if what.startswith("tool") else []
            calls += [delegate("fail", "go")] if what == "function" else []
            calls += [delegate("foreign", "go")] if what == "graph" else []
        if messages[-1].type == "human" and calls:
            return calls
        if agent == level and what == "model":
            boom()
        # Whatever it has read is said, and so it reaches the next level.
        return " ".join(str(each.text) for each in messages)

    member: Agent | None = None
    for agent in reversed(LEVELS):
        extra: list[Any] = (
            [fail, foreign] if agent == level and what in ("function", "graph") else []
        )
        member = Agent(
            agent,
            model=ScriptedModel(partial(reply, agent)),
            tools=[boom],
            subordinates=[*([member] if member else []), *extra],
        )
    assert member
    return member


async def arun(session: Session) -> list[RunEvent]:
    run = await session.asend("go")
    return [event async for event in run]


@given(
    level=st.sampled_from(LEVELS),
    what=st.sampled_from(KINDS),
    secret=st.sampled_from(SECRETS),
    place=st.sampled_from(PLACES),
    is_async=st.booleans(),
)
@settings(max_examples=sample(12, 800))
def test_a_secret_in_an_exception_is_found_nowhere(
    level: str, what: str, secret: str, place: str, is_async: bool
) -> None:
    log, records = logging.getLogger("echelons"), Kept()
    log.addHandler(records)
    try:
        with TemporaryDirectory() as folder:
            database = Path(folder) / "trip.sqlite"
            events: list[RunEvent] = []
            team = build_team(level, what, secret, place)
            with Session(team, database) as session:
                try:
                    events += asyncio.run(arun(session)) if is_async else session.send("go")
                except (ValueError, ExceptionGroup):
                    assert (level, what) == ("head", "model")
                failures = session.thread_store.failures(session.thread_id)
                threads = [
                    session.thread_store.get(each.thread_id, session.thread_id)
                    for each in session.trace().walk()
                ]
                stored = b"".join(each.read_bytes() for each in Path(folder).iterdir())
    finally:
        log.removeHandler(records)

    assert len(failures) == len(records.texts) == 1
    read = [message.model_dump_json() for thread in threads for message in thread.messages]
    assert any(failures[0].id in text for text in read) or (level, what) == ("head", "model")
    seen = "\n".join([*records.texts, *read, *map(repr, events), repr(failures)])
    assert "hUnter2" not in seen
    assert b"hUnter2" not in stored


class Kept(logging.Handler):
    """Keeps each record as a formatter would print it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))
