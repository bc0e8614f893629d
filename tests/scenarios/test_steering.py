"""Interventions: who is at work is redirected at once, and what it had said stays."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from echelons import Agent, Limits, Session, SqliteCheckpointer
from echelons.errors import UnknownPath
from echelons.testing import Call, FakeClock, OpenAIServer, Reply, ScriptedModel, delegate
from tests.error_codes import raises_code
from tests.fork_server import REPOSITORY, ForkServer
from tests.proof import WHOLE, sample
from tests.scenarios.drivers.camp import asked
from tests.scenarios.drivers.steered import SCOUT, WORDS, Metronome, run, tree

if TYPE_CHECKING:
    from tests.scenarios.conftest import World


def messages_of(session: Session, agent: str = "scout") -> Sequence[BaseMessage]:
    """Return the messages of an agent's thread."""
    [found] = [each for each in session.trace().walk() if each.agent == agent]
    return session.thread_store.get(found.thread_id).messages


def test_the_reply_is_cut_at_its_next_chunk_and_what_was_said_stays(
    world: World, saver: SqliteCheckpointer
) -> None:
    clock = Metronome(5, lambda: session.steer(SCOUT, "Come back."))
    session = Session(tree(clock=clock), saver)

    assert world.send(session, "go").text == "over"

    task, said, intervention, redirected = messages_of(session)
    assert isinstance(said, AIMessage)
    assert said.response_metadata["cut"] == "intervention"
    assert said.usage_metadata is None
    assert WORDS.startswith(str(said.text))
    assert 5 <= len(str(said.text).split()) <= 8
    assert isinstance(intervention, HumanMessage)
    assert intervention.text == (
        'Intervention by the user, which goes before what you were told so far: "Come back."'
    )
    assert (task.text, redirected.text) == ("go", "redirected")
    assert asked(session.graph.agent, "scout") == 2
    assert asked(session.graph.agent, "north") == asked(session.graph.agent, "head") == 2


def test_a_limit_of_tokens_counts_what_a_reply_had_said_that_is_cut(
    world: World, saver: SqliteCheckpointer
) -> None:
    clock = Metronome(250, lambda: session.steer(SCOUT, "Come back."))
    root = tree(clock=clock)
    limited = Agent(
        "head", model=root.model, subordinates=root.subordinates, limits=Limits(tokens=1200)
    )
    session = Session(limited, saver)

    result = world.send(session, "go")

    assert result.status == "limited"
    assert result.reason.endswith(" of 1200 tokens")
    scout = session.usage(SCOUT).total
    assert (scout.model_calls, scout.estimated_calls) == (2, 2)
    assert scout.charged_tokens > 400


def test_the_calls_of_a_reply_that_is_cut_are_dropped(
    world: World, saver: SqliteCheckpointer
) -> None:
    clock = Metronome(4, lambda: session.steer(SCOUT, "Come back."))
    talk = Reply("one two three", calls=[Call("look")], latency=1.0)
    session = Session(tree(clock=clock, scout=[talk, "redirected"]), saver)

    world.send(session, "go")

    said = messages_of(session)[1]
    assert isinstance(said, AIMessage)
    assert (said.text.split()[0], said.tool_calls) == ("one", [])


def test_what_sends_no_chunks_is_redirected_before_its_calls_run(
    world: World, saver: SqliteCheckpointer
) -> None:
    def answer(_: Sequence[BaseMessage]) -> Any:
        if asked(head, "scout") > 1:
            return "redirected"
        session.steer(SCOUT, "Come back.")
        return Reply("I look.", calls=[Call("look")], usage=(3, 4))

    head = tree(scout=answer)
    session = Session(head, saver)

    # A run of the graph itself streams no tokens.
    world.invoke(session.graph, {"messages": ["go"]}, session.config)

    said = messages_of(session)[1]
    assert isinstance(said, AIMessage)
    assert (said.text, said.tool_calls) == ("I look.", [])
    assert said.usage_metadata is not None
    assert messages_of(session)[-1].text == "redirected"


def test_a_reply_that_was_cut_before_it_had_a_word_is_no_empty_message(
    world: World, saver: SqliteCheckpointer
) -> None:
    clock = Metronome(1, lambda: session.steer("head", "Stop."))
    silent = Reply("", calls=[Call("nothing", {"a": "b" * 100})], latency=1.0)
    head = Agent("head", model=ScriptedModel([silent, "redirected"], clock=clock))
    session = Session(head, saver)

    assert world.send(session, "go").text == "redirected"

    [_, said, _, _] = session.graph.get_state(session.config).values["messages"]
    assert (said.text, said.tool_calls) == ("…", [])


def test_superior_of_working_agent_is_redirected_after_its_call(
    world: World, saver: SqliteCheckpointer
) -> None:
    clock = Metronome(5, lambda: session.steer("head/north", "Enough."))
    session = Session(tree(clock=clock), saver)

    world.send(session, "go")

    assert asked(session.graph.agent, "scout") == 1
    assert messages_of(session, "north")[-2].text.endswith('"Enough."')


def test_a_second_intervention_cuts_the_next_reply(world: World, saver: SqliteCheckpointer) -> None:
    clock = Metronome(5, lambda: session.steer(SCOUT, "Come back."))
    script = [Reply(WORDS, latency=1.0)] * 2
    session = Session(tree(clock=clock, scout=[*script, "at last"]), saver)
    again = Metronome(30, lambda: session.steer(SCOUT, "Now!"))
    advance = clock.advance

    def both(seconds: float) -> None:
        advance(seconds)
        again.advance(seconds)

    clock.advance = both  # type: ignore[method-assign]

    world.send(session, "go")

    kinds = [each.type for each in messages_of(session)]
    assert kinds == ["human", "ai", "human", "ai", "human", "ai"]
    assert messages_of(session)[-1].text == "at last"


class HeldClock(FakeClock):
    """A clock whose time goes on once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = threading.Event()
        self.may_go_on = threading.Event()

    def advance(self, seconds: float) -> None:
        self.is_held.set()
        assert self.may_go_on.wait(120)
        super().advance(seconds)


def test_reply_is_not_cut_for_message_to_another_thread(
    saver: SqliteCheckpointer,
) -> None:
    clock, streaming = HeldClock(), list[str]()

    def pack(messages: Sequence[BaseMessage]) -> Any:
        heard = [each for each in messages if "mail" in each.response_metadata]
        if len(heard) == 1 and heard[0].text.endswith('"It rains."'):
            streaming.append(messages[0].text)
            return Reply(WORDS, latency=1.0)
        if not heard:
            return Call("redirect")
        clock.may_go_on.set()
        return "left"

    def redirect() -> str:
        """Redirect the packer while its other thread streams."""
        assert clock.is_held.wait(120)
        session.steer("head/packer", "Leave it.")
        return "done"

    both = [delegate("packer", "hats"), delegate("packer", "coats", reset=True)]
    model = ScriptedModel({"head": [both, "over"], "packer": pack}, clock=clock)
    packer = Agent("packer", tools=[redirect])
    session = Session(Agent("head", model=model, subordinates=[packer]), saver)
    session.send_message("head/packer", "It rains.")

    result = session.send("go").result()

    assert (result.text, len(streaming)) == ("over", 1)
    assert asked(session.graph.agent, "packer") == 3
    assert session.usage().total.model_calls == result.usage.model_calls == len(model.calls)


def test_an_old_intervention_cuts_no_later_reply(world: World, saver: SqliteCheckpointer) -> None:
    model = ScriptedModel([Reply(WORDS, latency=1.0)], clock=FakeClock())
    session = Session(Agent("head", model=model), saver)
    world.do(session, "steer", "head", "Be brief.")
    for _ in range(2):
        assert world.send(session, "go").text == WORDS

    texts = [each.text for each in session.graph.get_state(session.config).values["messages"]]
    assert len(texts) == 5


def test_it_is_an_event_and_in_the_trace(saver: SqliteCheckpointer) -> None:
    clock = Metronome(5, lambda: session.steer(SCOUT, "Come back."))
    session = Session(tree(clock=clock), saver)

    events = [event for event in session.send("go") if event.path == SCOUT]

    kinds = [str(each.kind) for each in events if each.kind != "token"]
    assert kinds == ["task", "message", "intervention", "message", "response"]
    [cut, *_] = [each for each in events if each.kind == "message"]
    assert cut.data["cut"] == "intervention"
    assert "intervention from the user: Come back." in session.trace().text


def test_agent_that_cannot_be_redirected_is_refused_by_name(
    world: World, saver: SqliteCheckpointer
) -> None:
    session = Session(tree(latency=0.0), saver)
    with pytest.raises(UnknownPath):
        world.do(session, "steer", "head/west", "Go.")
    with raises_code("input_too_large"):
        world.do(session, "steer", "head", "x" * 2**20)
    world.do(session, "steer", "head/north", "Look twice.")
    world.send(session, "go")
    world.do(session, "steer", SCOUT, "It is finished, so this is kept.")

    assert messages_of(session, "north")[1].text.endswith('"Look twice."')

    def halt(_: Sequence[BaseMessage]) -> Any:
        other.stop(SCOUT)
        with raises_code("message_refused", match="was told to stop"):
            other.steer(SCOUT, "Go on!")
        return "too late"

    other = Session(tree(scout=halt), saver, thread="other")
    world.send(other, "go")


def test_paused_agent_is_redirected_when_it_resumes(
    world: World, saver: SqliteCheckpointer
) -> None:
    def rest() -> str:
        """Rest."""
        session.pause("head/scout")
        return "rested"

    model = ScriptedModel(
        {"head": [delegate("scout", "go"), "over"], "scout": [Call("rest"), "redirected"]}
    )
    scout = Agent("scout", tools=[rest])
    session = Session(Agent("head", model=model, subordinates=[scout]), saver)
    assert world.send(session, "go").status == "paused"

    world.do(session, "steer", "head/scout", "Come back.")

    assert world.resume(session).text == "over"
    assert messages_of(session)[-2].text.endswith('"Come back."')
    assert asked(session.graph.agent, "scout") == 2


def test_a_model_that_a_tool_calls_is_not_cut(world: World, saver: SqliteCheckpointer) -> None:
    clock = Metronome(5, lambda: session.steer("head", "Stop."))
    inner = ScriptedModel([Reply(WORDS, latency=1.0)], clock=clock)

    def think() -> str:
        """Think."""
        return str(inner.invoke("think").text)

    head = Agent("head", model=ScriptedModel([Call("think"), "redirected"]), tools=[think])
    session = Session(head, saver)

    assert world.send(session, "go").text == "redirected"

    [_, _, thought, intervention, _] = session.graph.get_state(session.config).values["messages"]
    assert thought.text == WORDS
    assert intervention.text.endswith('"Stop."')


@pytest.mark.parametrize("world_name", ["sync", "async"])
def test_another_process_redirects_it_at_once(
    world_name: str, tmp_path: Path, fork_server: ForkServer, capsys: Any
) -> None:
    """The proof shows how long it takes; the reply could go on for ten minutes."""
    seconds = [
        redirect(tmp_path / f"{number}.sqlite", world_name, fork_server)
        for number in range(sample(1, 10))
    ]

    if WHOLE:
        with capsys.disabled():
            print(f"\nredirected ({world_name}) after", *(f"{each:.2f}" for each in seconds), "s")
        assert min(seconds) < 1


def redirect(database: Path, world_name: str, fork_server: ForkServer) -> float:
    """Redirect the scout from another process, and return after how many seconds it was cut off."""
    driver = ("-m", "tests.scenarios.drivers.steered", str(database))
    other = fork_server.start(*driver, cwd=REPOSITORY, stdin=subprocess.PIPE)
    assert other.stdin
    assert other.stdout
    assert other.stdout.readline() == "ready\n"
    times: dict[str, float] = {}

    def note(event: Any) -> None:
        if event.path != SCOUT:
            return
        # An intervention from before the reply is read with the task: nothing is cut off.
        if event.kind == "token" and "token" not in times:
            print("now", file=other.stdin, flush=True)
        times[str(event.kind)] = time.monotonic()

    result = run(database, world_name, note)
    stdout, stderr = other.communicate()

    assert (result.text, stderr) == ("over", "")
    with Session(tree(), database, thread="t") as session:
        _, said, intervention, redirected = messages_of(session)
    assert said.response_metadata["cut"] == "intervention"
    assert intervention.text.endswith('"Come back."')
    assert redirected.text == "redirected"
    return times["intervention"] - float(stdout)


class AtToken(BaseCallbackHandler):
    """Calls a function at the third token of a reply."""

    run_inline = True

    def __init__(self, function: Callable[[], object]) -> None:
        self._left = 3
        self._function = function

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._function()


def test_a_real_client_is_cut_and_goes_on(world: World, saver: SqliteCheckpointer) -> None:
    langchain_openai = pytest.importorskip("langchain_openai")
    with OpenAIServer([Reply(WORDS), "redirected"]) as server:
        model = langchain_openai.ChatOpenAI(
            model="test-model", base_url=server.url, api_key="none", max_retries=0
        )
        handler = AtToken(lambda: session.steer("head", "Come back."))
        session = Session(Agent("head", model=model), saver, callbacks=[handler])

        assert world.send(session, "go").text == "redirected"

    _, said, intervention, _ = session.graph.get_state(session.config).values["messages"]
    assert said.response_metadata["cut"] == "intervention"
    assert said.usage_metadata is None
    assert len(said.text.split()) < 10
    assert intervention.text.endswith('"Come back."')
    assert len(server.requests) == 2
