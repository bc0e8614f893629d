"""LangChain's middleware at the second level of a tree: its hooks, its state, its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    SummarizationMiddleware,
    ToolRetryMiddleware,
    hook_config,
)
from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.channels import EphemeralValue
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.stream import StreamTransformer
from langgraph.types import Command, interrupt

from echelons import Agent, Decision, Limits, Permissions, Session, effect
from echelons.features.middleware.level import HookNode
from echelons.models.request_messages import GO_ON
from echelons.testing import Call, ScriptedModel, delegate
from tests.error_codes import raises_code

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TASK: Any = {"messages": [("user", "go")]}


@tool
def book(city: str) -> str:
    """Book a city."""
    return f"booked {city}"


def team(
    *middleware: Any,
    steps: Any = ("done",),
    head: Any = None,
    leaf: Any = ("done",),
    tools: Any = (book,),
    **more: Any,
) -> tuple[Agent, ScriptedModel]:
    """Return a tree of three levels whose second agent has middleware."""
    # Across requests, and whatever a middleware takes out of the conversation.
    model = ScriptedModel(
        {
            "head": follow(head or [delegate("mid", "go"), "end"]),
            "mid": follow(steps),
            "leaf": follow(leaf),
        }
    )
    mid = Agent("mid", tools=tools, subordinates=[Agent("leaf")], middleware=middleware, **more)
    return Agent("head", model=model, subordinates=[mid]), model


def follow(steps: Any) -> Any:
    """Return a script that follows steps one by one, whatever it is shown."""
    left = iter(steps)
    return lambda messages: next(left)


def shown(model: ScriptedModel, agent: str = "mid") -> list[list[str]]:
    """Return the texts that each call of an agent's model was shown, without its instructions."""
    return [
        [str(each.text) for each in call.messages if each.type != "system"]
        for call in model.calls
        if call.agent == agent
    ]


class Diary(AgentMiddleware[Any, Any]):
    """Writes down which hooks run, and how many messages each sees."""

    def __init__(self, name: str = "diary", lines: list[str] | None = None) -> None:
        self._name = name
        self.lines: list[str] = [] if lines is None else lines

    @property
    def name(self) -> str:
        return self._name

    def _note(self, hook: str, state: Any) -> None:
        self.lines.append(f"{self._name} {hook} {len(state['messages'])}")

    def before_agent(self, state: Any, runtime: Any) -> None:
        self._note("before_agent", state)

    def before_model(self, state: Any, runtime: Any) -> None:
        self._note("before_model", state)

    def after_model(self, state: Any, runtime: Any) -> None:
        self._note("after_model", state)

    def after_agent(self, state: Any, runtime: Any) -> None:
        self._note("after_agent", state)

    def wrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        self._note("wrap_model_call", request.state)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        self._note("wrap_model_call", request.state)
        return await handler(request)

    def wrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        self._note("wrap_tool_call", request.state)
        return handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        self._note("wrap_tool_call", request.state)
        return await handler(request)


def hooks(diary: Diary) -> list[str]:
    return [line.split()[1] for line in diary.lines]


def test_hooks_run_in_the_order_of_create_agent_and_see_the_whole_thread(world: World) -> None:
    lines: list[str] = []
    outer, inner = Diary("outer", lines), Diary("inner", lines)
    steps = [Call("book", {"city": "Rome"}), "done", "again done"]
    head = [delegate("mid", "go"), "end", delegate("mid", "go on"), "end"]
    agent, _ = team(outer, inner, steps=steps, head=head)
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
        first, lines[:] = [*lines], []
        world.send(session, "go on")
    assert first == [
        "outer before_agent 1",
        "inner before_agent 1",
        "outer before_model 1",
        "inner before_model 1",
        "outer wrap_model_call 1",
        "inner wrap_model_call 1",
        "inner after_model 2",
        "outer after_model 2",
        "outer wrap_tool_call 2",
        "inner wrap_tool_call 2",
        "outer before_model 3",
        "inner before_model 3",
        "outer wrap_model_call 3",
        "inner wrap_model_call 3",
        "inner after_model 4",
        "outer after_model 4",
        "inner after_agent 4",
        "outer after_agent 4",
    ]
    # The next request is another segment of the same thread: task and reply are the 5th and 6th.
    assert lines[0] == "outer before_agent 5"
    assert lines[-1] == "outer after_agent 6"


def test_a_request_that_is_only_passed_on_meets_no_hook(world: World) -> None:
    diary = Diary()
    agent, model = team(diary, head=["end"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go", to="head/mid/leaf")
    assert [call.agent for call in model.calls if call.agent == "leaf"] == ["leaf"]
    assert not [line for line in diary.lines if "after_model" in line and line.endswith(" 1")]


def test_middleware_is_inherited_only_where_the_agent_says_so(world: World) -> None:
    lines: list[str] = []
    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "end"],
            "mid": [delegate("low", "go"), delegate("other", "go"), "done"],
            "low": ["done"],
            "other": ["done"],
        }
    )
    low = Agent("low", middleware=[Diary("own", lines)], inherit_middleware=True)
    mid = Agent("mid", middleware=[Diary("above", lines)], subordinates=[low, Agent("other")])
    agent = Agent("head", model=model, subordinates=[mid])
    world.invoke(agent.compile(), TASK)
    entered = [line.split()[0] for line in lines if "before_agent" in line]
    assert entered == ["above", "above", "own"]  # of mid; of low, outermost first; none of other


class Counting(AgentMiddleware[Any, Any]):
    """Counts model calls in a state of its own, private to its agent's thread."""

    class State(AgentState[Any]):
        counted: NotRequired[int]

    state_schema = State

    def __init__(self) -> None:
        self.seen: list[int] = []

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        self.seen.append(state.get("counted", 0) + 1)
        return {"counted": state.get("counted", 0) + 1}


def test_the_state_of_a_middleware_goes_on_in_the_next_request(world: World) -> None:
    counting = Counting()
    head = [delegate("mid", "go"), "end", delegate("mid", "more"), "end"]
    agent, _ = team(counting, steps=["one", "two"], head=head)
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
        world.send(session, "more")
    assert counting.seen == [1, 2]


class Forgetful(AgentMiddleware[Any, Any]):
    """Keeps only the last message of a conversation that has become long."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if len(state["messages"]) < 4:
            return None
        kept = [HumanMessage("what was before: nothing"), state["messages"][-1]]
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept]}


def test_what_a_hook_removes_is_cut_off_and_earlier_segments_stay(world: World) -> None:
    head = [step for turn in range(4) for step in (delegate("mid", f"task {turn}"), "end")]
    agent, model = team(Forgetful(), steps=["one", "two", "three", "four"], head=head)
    with Session(agent, ":memory:") as session:
        for turn in range(4):
            world.send(session, f"turn {turn}")
    assert shown(model) == [
        ["task 0"],
        ["task 0", "one", "task 1"],
        ["what was before: nothing", "task 2"],
        # Three messages are left of it, and with the task they are four.
        ["what was before: nothing", "task 3"],
    ]


def test_a_reply_after_a_cut_takes_no_id_of_a_removed_message(world: World) -> None:
    class Rewinding(AgentMiddleware[Any, Any]):
        def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            calls = [each for each in state["messages"] if each.type == "ai"]
            if not calls:
                return None
            gone = [RemoveMessage(id=each.id) for each in state["messages"][1:]]
            return {"messages": gone}

    steps = [delegate("leaf", "first"), delegate("leaf", "second"), "done"]
    agent, model = team(Rewinding(), steps=steps, leaf=["one", "two"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    # Each call started a request of its own, although the conversation looked the same.
    assert [texts[-1] for texts in shown(model, "leaf")] == ["first", "second"]


class Jumping(AgentMiddleware[Any, Any]):
    """Jumps before the first model call, with a message."""

    def __init__(self, target: str) -> None:
        self.target = target

    @hook_config(can_jump_to=["end", "tools", "model"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if len(state["messages"]) > 1:
            return None
        call = {"name": "book", "args": {"city": "Rome"}, "id": "", "type": "tool_call"}
        said = AIMessage("jumped", tool_calls=[call] if self.target == "tools" else [])
        return {"jump_to": self.target, "messages": [said]}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("end", []),
        ("model", [["go", "jumped", GO_ON]]),
        ("tools", [["go", "jumped", "booked Rome"]]),
    ],
)
def test_a_hook_jumps(world: World, target: str, expected: list[list[str]]) -> None:
    agent, model = team(Jumping(target))
    world.invoke(agent.compile(), TASK)
    assert shown(model) == expected


@tool(return_direct=True)
def fetch(place: str) -> str:
    """Fetch a report that is the answer."""
    return f"report of {place}"


def test_no_hook_runs_before_a_model_that_is_not_called(world: World) -> None:
    steps = [Call("book", {"city": "Rome"}), Call("fetch", {"place": "Rome"})]
    theirs, ours = Diary(), Diary()
    model = ScriptedModel(follow(steps))
    graph: Any = create_agent(model, [book, fetch], middleware=[theirs])
    expected = world.invoke(graph, TASK)["messages"][-1]

    agent, own = team(ours, steps=steps, tools=(book, fetch))
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert hooks(ours) == hooks(theirs)
    assert hooks(ours).count("before_model") == 2
    [answer] = [each.messages[-1] for each in own.calls if each.agent == "head"][1:]
    assert answer.text == expected.text


def test_mail_that_comes_when_the_hooks_were_skipped_lets_them_run_before_the_model(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    diary = Diary()
    agent, model = team(
        diary, steps=[Call("fetch", {"place": "Rome"}), "It is cold in Oslo."], tools=(fetch,)
    )
    session = Session(agent, ":memory:")

    def steer(done: Any) -> Any:
        if done == {"unhooked": True}:
            session.steer("head/mid", "No, of Oslo.")
        return done

    invoke, ainvoke = HookNode.invoke, HookNode.ainvoke

    async def asteer(*args: Any, **kwargs: Any) -> Any:
        return steer(await ainvoke(*args, **kwargs))

    monkeypatch.setattr(HookNode, "invoke", lambda *args, **kwargs: steer(invoke(*args, **kwargs)))
    monkeypatch.setattr(HookNode, "ainvoke", asteer)
    with session:
        assert world.send(session, "go").text == "end"
    assert [call.agent for call in model.calls] == ["head", "mid", "mid", "head"]
    assert hooks(diary).count("before_model") == 2
    assert "No, of Oslo." in str(model.calls[2].messages[-1].text)


def test_a_jump_back_to_the_model_takes_back_a_report(world: World) -> None:
    class Doubting(AgentMiddleware[Any, Any]):
        @hook_config(can_jump_to=["model"])
        def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            replies = [each for each in state["messages"] if each.type == "ai"]
            return {"jump_to": "model"} if len(replies) == 1 else None

    report = Call("report", {"status": "fulfilled", "result": "too early"})
    agent, model = team(Doubting(), steps=[report, "better"])
    world.invoke(agent.compile(), TASK)
    assert shown(model, "head")[-1][-1] == "better"


def test_a_middleware_that_always_jumps_back_ends_at_the_limit_of_calls(world: World) -> None:
    class Restless(AgentMiddleware[Any, Any]):
        @hook_config(can_jump_to=["model"])
        def after_model(self, state: Any, runtime: Any) -> dict[str, Any]:
            return {"jump_to": "model"}

    agent, _ = team(Restless(), steps=["again"] * 20)
    limited = Agent(
        "head", model=agent.model, subordinates=agent.subordinates, limits=Limits(calls=6)
    )
    with Session(limited, ":memory:") as session:
        assert world.send(session, "go").status == "limited"


def test_a_wrap_changes_what_the_model_is_given_and_what_it_says(world: World) -> None:
    class Polite(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            more = [*request.messages, HumanMessage("be polite")]
            return self.answer(handler(request.override(messages=more)))

        async def awrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            more = [*request.messages, HumanMessage("be polite")]
            return self.answer(await handler(request.override(messages=more)))

        def answer(self, response: ModelResponse[Any]) -> ExtendedModelResponse[Any]:
            [reply] = response.result
            polite = reply.model_copy(update={"content": f"please: {reply.text}"})
            added = [HumanMessage("say more")] if reply.text == "done" else []
            update = {"messages": added}
            return ExtendedModelResponse(ModelResponse([polite]), Command(update=update))

    agent, model = team(Polite(), steps=["done", "more done"])
    world.invoke(agent.compile(), TASK)
    assert shown(model)[0] == ["go", "be polite"]
    # What the model was given in between is not stored; the command's message is, and is read.
    assert shown(model)[1] == ["go", "please: done", "say more", "be polite"]
    assert shown(model, "head")[-1][-1] == "please: more done"


def test_each_call_of_a_retry_counts_against_the_limits(world: World) -> None:
    class Twice(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            handler(request)
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            await handler(request)
            return await handler(request)

    agent, _ = team(Twice(), steps=["one", "two"])
    limited = Agent(
        "head", model=agent.model, subordinates=agent.subordinates, limits=Limits(calls=2)
    )
    with Session(limited, ":memory:") as session:
        result = world.send(session, "go")
        assert "2 of 2 model calls" in result.reason


# Tools


def flaky(failures: int, error: Exception) -> tuple[Any, list[str]]:
    """Return a tool that fails some times, and the list of its calls."""
    calls: list[str] = []

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        calls.append(f"paid {amount}")
        if len(calls) <= failures:
            raise error
        return f"paid {amount}"

    return pay, calls


def test_a_retry_gets_the_exception_of_the_tool_and_runs_it_again(world: World) -> None:
    pay, calls = flaky(2, ValueError("busy"))
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0, retry_on=(ValueError,))
    agent, model = team(retry, steps=[Call("pay", {"amount": 3}), "done"], tools=[pay])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert calls == ["paid 3"] * 3
    assert shown(model)[-1][-1] == "paid 3"


def test_an_exception_that_no_wrap_catches_becomes_the_answer_of_the_call(world: World) -> None:
    pay, calls = flaky(5, KeyError("gone"))
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0, retry_on=(ValueError,))
    agent, model = team(retry, steps=[Call("pay", {"amount": 3}), "done"], tools=[pay])
    world.invoke(agent.compile(), TASK)
    assert calls == ["paid 3"]
    assert "KeyError" in shown(model)[-1][-1]
    last = model.calls[-2].messages[-1]
    assert isinstance(last, ToolMessage)
    assert "failure" not in last.response_metadata


def test_a_call_of_several_entries_that_waits_runs_none_of_them_again(world: World) -> None:
    """The second entry asks; when it is answered, the failure of the first is only repeated."""
    calls: list[str] = []

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        if not calls:
            calls.append("failed")
            raise ValueError("busy")
        said = interrupt("how much?")
        calls.append(str(said))
        return f"paid {said}"

    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0, retry_on=(ValueError,))
    agent, model = team(retry, steps=[Call("pay", {"amount": 3}), "done"], tools=[pay])
    with Session(agent, ":memory:") as session:
        asked = world.send(session, "go")
        assert [each.value for each in asked.questions] == ["how much?"]
        world.answer(session, {asked.questions[0].id: 7})
    assert calls == ["failed", "7"]
    assert shown(model)[-1][-1] == "paid 7"


class Asking(AgentMiddleware[Any, Any]):
    """Asks the user before each call of a tool, and after it."""

    def wrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        before = interrupt("may it run?")
        done = handler(request)
        after = interrupt("was it good?")
        return done.model_copy(update={"content": f"{before} / {done.text} / {after}"})

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        before = interrupt("may it run?")
        done = await handler(request)
        after = interrupt("was it good?")
        return done.model_copy(update={"content": f"{before} / {done.text} / {after}"})


@pytest.mark.parametrize("reads_only", [False, True])
def test_questions_of_a_wrap_an_approval_and_a_tool_keep_their_own_answers(
    world: World, reads_only: bool
) -> None:
    runs: list[str] = []

    @tool
    @effect(reads_only=reads_only)
    def pay(amount: int) -> str:
        """Pay an amount."""
        runs.append("begun")
        said = interrupt("how much?")
        runs.append("paid")
        return f"paid {said}"

    rules = Permissions(approvals={"pay": "ask"})
    steps = [Call("pay", {"amount": 3}), "done"]
    agent, model = team(Asking(), steps=steps, tools=[pay], permissions=rules)
    with Session(agent, ":memory:") as session:
        result = world.send(session, "go")
        given: list[Any] = ["yes", Decision("approve"), 7, "very"]
        for answer in given:
            [question] = result.questions
            result = world.answer(session, {question.id: answer})
    # What only reads has no journal, and is run again.
    assert runs.count("paid") == (2 if reads_only else 1)
    assert shown(model)[-1][-1] == "yes / paid 7 / very"


def test_an_approval_holds_for_all_entries_of_a_call_with_the_same_arguments(world: World) -> None:
    pay, calls = flaky(2, ValueError("busy"))
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0)
    rules = Permissions(approvals={"pay": "ask"})
    steps = [Call("pay", {"amount": 3}), "done"]
    agent, model = team(retry, steps=steps, tools=[pay], permissions=rules)
    with Session(agent, ":memory:") as session:
        asked = world.send(session, "go")
        assert calls == []
        done = world.answer(session, {asked.questions[0].id: "approve"})
        assert not done.questions
    assert calls == ["paid 3"] * 3
    assert shown(model)[-1][-1] == "paid 3"


def test_a_tool_of_a_middleware_can_be_held(world: World) -> None:
    ran: list[str] = []

    @tool
    def note(text: str) -> str:
        """Note it."""
        ran.append(text)
        return "noted"

    class Notes(AgentMiddleware[Any, Any]):
        tools = [note]

    model = ScriptedModel(
        {
            "head": [delegate("mid", "go"), "end"],
            "mid": [Call("note", {"text": "x"}), "done"],
        }
    )
    mid = Agent("mid", middleware=[Notes()])
    rules = Permissions(approvals={"note": "ask"})
    head = Agent("head", model=model, subordinates=[mid], permissions=rules)
    with Session(head, ":memory:") as session:
        [question] = world.send(session, "go").questions
        assert ran == []
        assert world.answer(session, {question.id: Decision("approve")}).text == "end"
    assert ran == ["x"]


def test_changed_arguments_are_approved_as_they_are_run(world: World) -> None:
    class Doubling(AgentMiddleware[Any, Any]):
        def change(self, request: Any) -> Any:
            call = {**request.tool_call, "args": {"amount": 6}}
            return request.override(tool_call=call)

        def wrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            return handler(self.change(request))

        async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            return await handler(self.change(request))

    pay, calls = flaky(0, ValueError())
    rules = Permissions(approvals={"pay": "ask"})
    steps = [Call("pay", {"amount": 3}), "done"]
    agent, _ = team(Doubling(), steps=steps, tools=[pay], permissions=rules)
    with Session(agent, ":memory:") as session:
        asked = world.send(session, "go")
        assert asked.questions[0].value["args"] == {"amount": 6}
        world.answer(session, {asked.questions[0].id: "approve"})
    assert calls == ["paid 6"]


def test_a_middleware_brings_a_tool_and_a_state_that_the_tool_updates(world: World) -> None:
    class Notes(AgentMiddleware[Any, Any]):
        class State(AgentState[Any]):
            notes: NotRequired[list[str]]
            passing: NotRequired[Annotated[str, EphemeralValue]]

        state_schema = State

        def __init__(self) -> None:
            @tool
            def remember(text: str, call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
                """Remember a text."""
                said = ToolMessage("noted", tool_call_id=call_id)
                return Command(update={"notes": [text], "messages": [said]})

            self.tools = [remember]
            self.seen: list[Any] = []

        def before_model(self, state: Any, runtime: Any) -> None:
            self.seen.append(state.get("notes"))

    notes = Notes()
    agent, _ = team(notes, steps=[Call("remember", {"text": "milk"}), "done"])
    world.invoke(agent.compile(), TASK)
    assert notes.seen == [None, ["milk"]]


def test_a_summary_costs_its_agent_no_call(world: World) -> None:
    summaries = ScriptedModel(["all in short"])
    summing = SummarizationMiddleware(summaries, trigger=("messages", 3), keep=("messages", 1))
    steps = [Call("book", {"city": "Rome"}), Call("book", {"city": "Oslo"}), "done"]
    agent, model = team(summing, steps=steps)
    with Session(agent, ":memory:") as session:
        result = world.send(session, "go")
    assert len(summaries.calls) > 0
    assert result.usage.model_calls == len(model.calls)


def test_conversation_kept_by_a_hook_is_shown_once() -> None:
    summing = SummarizationMiddleware(
        ScriptedModel(["all in short"]), trigger=("messages", 3), keep=("messages", 1)
    )
    steps = [Call("book", {"city": "Rome"}), Call("book", {"city": "Oslo"}), "done"]
    agent, _ = team(summing, steps=steps)
    with Session(agent, ":memory:") as session:
        events = [(str(each.kind), each.content) for each in session.send("go")]
    assert [text for kind, text in events if kind == "tool_result"] == [
        "booked Rome",
        "booked Oslo",
    ]
    assert "all in short" not in "".join(text for kind, text in events if kind == "token")


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
def test_transformers_of_every_level_see_the_events_of_the_whole_tree() -> None:
    scopes: list[tuple[str, ...]] = []

    class Listening(StreamTransformer):
        def __init__(self, scope: tuple[str, ...] = ()) -> None:
            super().__init__(scope)
            self.seen = 0
            scopes.append(scope)

        def init(self) -> dict[str, Any]:
            return {}

        def process(self, event: Any) -> bool:
            self.seen += 1
            return True

    class Telling(AgentMiddleware[Any, Any]):
        transformers = (Listening,)

    agent, _ = team(Telling())
    run = agent.compile().stream_events(TASK, version="v3")
    assert run.output
    assert run.output["messages"][-1].text == "end"
    assert () in scopes


def test_watcher_gets_chunks_or_the_whole_reply(world: World) -> None:
    told: list[str] = []

    class Watching(AgentMiddleware[Any, Any]):
        def on_stream_chunk(self, chunk: Any, runtime: Any) -> None:
            told.append(str(chunk.text))

    agent, _ = team(Watching(), steps=["well done, all of you"])
    world.invoke(agent.compile(), TASK)
    assert "".join(told) == "well done, all of you"
    told.clear()
    agent, _ = team(Watching(), steps=["well done, all of you"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    assert "".join(told) == "well done, all of you"


def test_a_watcher_that_raises_is_named(world: World) -> None:
    class Watching(AgentMiddleware[Any, Any]):
        def on_stream_chunk(self, chunk: Any, runtime: Any) -> None:
            raise ValueError("not now")

    agent = Agent("head", model=ScriptedModel({"head": ["end"]}), middleware=[Watching()])
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match="on_stream_chunk of the middleware 'Watching'"):
            world.send(session, "go")


# A stranger's


def boom(*_: Any) -> Any:
    raise ZeroDivisionError("oh no")


NODES = ["before_agent", "before_model", "after_model", "after_agent"]


@pytest.mark.parametrize("hook", [*NODES, "wrap_model_call", "wrap_tool_call"])
def test_a_middleware_that_raises_is_named_and_the_turn_goes_on_when_it_is_mended(
    world: World, hook: str
) -> None:
    broken = [True]

    def fail(self: Any, given: Any, other: Any) -> Any:
        if broken[0]:
            boom()
        return other(given) if hook.startswith("wrap") else None

    async def afail(self: Any, given: Any, other: Any) -> Any:
        if broken[0]:
            boom()
        return await other(given) if hook.startswith("wrap") else None

    stranger = type("Stranger", (AgentMiddleware,), {hook: fail, f"a{hook}": afail})()
    model = ScriptedModel({"head": [Call("book", {"city": "Rome"}), "end"] * 2})
    agent = Agent("head", model=model, tools=[book], middleware=[stranger])
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match="ZeroDivisionError: oh no") as caught:
            world.send(session, "go")
        failed = caught.value
        assert (failed.agent, failed.middleware, failed.hook) == ("head", "Stranger", hook)
        broken[0] = False
        assert world.resume(session).text == "end"


def test_below_the_root_it_is_the_failure_of_its_agent(world: World) -> None:
    stranger = type("Stranger", (AgentMiddleware,), {"before_model": boom, "abefore_model": boom})
    agent, model = team(stranger())
    world.invoke(agent.compile(), TASK)
    told = shown(model, "head")[-1][-1]
    assert "Stranger" in told
    assert "head/mid" in told


def merge(old: list[str], new: list[str]) -> list[str]:
    return boom() if Noting.broken else [*old, *new]


class Noting(AgentMiddleware[Any, Any]):
    """Writes into a state key whose reducer raises while it is broken."""

    broken = True

    class State(AgentState[Any]):
        notes: NotRequired[Annotated[list[str], merge]]

    state_schema = State

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"notes": [f"saw {len(state['messages'])}"]}


def test_a_reducer_that_raises_is_named_and_the_turn_goes_on_when_it_is_mended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent("head", model=ScriptedModel({"head": ["end"]}), middleware=[Noting()])
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match="ZeroDivisionError: oh no") as caught:
            world.send(session, "go")
        failed, hook = caught.value, "the reducer of 'notes'"
        assert (failed.agent, failed.middleware, failed.hook) == ("head", "Noting", hook)
        monkeypatch.setattr(Noting, "broken", False)
        assert world.resume(session).text == "end"


def test_a_reducer_that_raises_below_the_root_is_the_failure_of_its_agent(world: World) -> None:
    agent, model = team(Noting())
    world.invoke(agent.compile(), TASK)
    told = shown(model, "head")[-1][-1]
    assert "the reducer of 'notes' of the middleware 'Noting' of 'head/mid' failed" in told
    assert "ZeroDivisionError: oh no" in told


@pytest.mark.parametrize(
    ("update", "why"),
    [
        ({"jump_to": "nowhere"}, "it jumps to 'nowhere'"),
        ({"jump_to": "end"}, "undeclared"),
        ({"colour": "red"}, "'colour', which is not in the state"),
        ({"heads": {}}, "'heads', which is not in the state"),
        ({"messages": [object()]}, "Unsupported message type"),
        ("nothing", "which is no update"),
        (Command(goto="act"), "which is no update"),
    ],
)
def test_a_hook_that_returns_nonsense_is_named(world: World, update: Any, why: str) -> None:
    def hook(self: Any, state: Any, runtime: Any) -> Any:
        return update

    stranger = type("Stranger", (AgentMiddleware,), {"before_model": hook})()
    model = ScriptedModel({"head": ["end"]})
    agent = Agent("head", model=model, middleware=[stranger])
    with Session(agent, ":memory:") as session, raises_code("middleware_failed") as caught:
        world.send(session, "go")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: ToolMessage("x", tool_call_id="another"),
        lambda request: Command(update={"messages": []}),
        lambda request: Command(update={"messages": [HumanMessage("x")]}),
        lambda request: Command(update=None),
        lambda request: [],
    ],
)
def test_a_wrap_that_leaves_a_call_without_an_answer_is_named(world: World, answer: Any) -> None:
    class Quiet(AgentMiddleware[Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return answer(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return answer(request)

    agent, model = team(Quiet(), steps=[Call("book", {"city": "Rome"})])
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert "does not answer the call" in str(model.calls[-1].messages[-1].text)


def test_a_wrap_may_answer_with_several_messages(world: World) -> None:
    class Several(AgentMiddleware[Any, Any]):
        def _build(self, request: Any) -> Any:
            answer = ToolMessage("by the wrap", tool_call_id=request.tool_call["id"])
            return [answer, Command(update={"messages": [HumanMessage("and more")]})]

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return self._build(request)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return self._build(request)

    agent, model = team(Several(), steps=[Call("book", {"city": "Rome"}), "done"])
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    assert shown(model)[-1] == ["go", "", "by the wrap", "and more"]


@pytest.mark.parametrize("field", ["messages", "model"])
def test_a_wrap_that_asks_for_no_model_or_with_no_messages_is_named(
    world: World, field: str
) -> None:
    class Empty(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(**{field: None}))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(request.override(**{field: None}))

    agent, model = team(Empty())
    with Session(agent, ":memory:") as session:
        assert world.send(session, "go").text == "end"
    said = str(model.calls[-1].messages[-1].text)
    assert "wrap_model_call of the middleware 'Empty' of 'head/mid' failed" in said
    assert "has no messages, or no chat model" in said


def test_a_state_key_of_ours_is_refused_when_the_agent_is_made() -> None:
    class Taken(AgentState[Any]):
        heads: NotRequired[int]

    class Evil(AgentMiddleware[Any, Any]):
        state_schema = Taken

    with raises_code("duplicate_name", match="'heads' stands more than once"):
        team(Evil())


def test_an_interrupt_that_is_swallowed_is_an_error_and_is_asked_when_that_is_mended(
    world: World,
) -> None:
    swallows = [True]

    def swallow(self: Any, request: Any, handler: Callable[..., Any]) -> Any:
        try:
            return handler(request)
        except Exception:
            if not swallows[0]:
                raise
            return ToolMessage("never mind", tool_call_id=request.tool_call["id"])

    async def aswallow(self: Any, request: Any, handler: Callable[..., Any]) -> Any:
        try:
            return await handler(request)
        except Exception:
            if not swallows[0]:
                raise
            return ToolMessage("never mind", tool_call_id=request.tool_call["id"])

    @tool
    def ask() -> str:
        """Ask."""
        return f"said {interrupt('well?')}"

    wraps = {"wrap_tool_call": swallow, "awrap_tool_call": aswallow}
    stranger = type("Stranger", (AgentMiddleware,), wraps)()
    model = ScriptedModel({"head": [Call("ask", {}), "end"]})
    agent = Agent("head", model=model, tools=[ask], middleware=[stranger])
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match="swallowed GraphInterrupt"):
            world.send(session, "go")
        swallows[0] = False
        asked = world.resume(session)
        assert world.answer(session, {asked.questions[0].id: "yes"}).text == "end"


def test_one_that_is_only_async_is_named_in_a_synchronous_run() -> None:
    async def awrap(self: Any, request: Any, handler: Callable[..., Any]) -> Any:
        return await handler(request)

    stranger = type("Stranger", (AgentMiddleware,), {"awrap_model_call": awrap})()
    agent = Agent("head", model=ScriptedModel({"head": ["end"]}), middleware=[stranger])
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match="needs wrap_model_call"):
            session.send("go").result()


def test_one_that_is_only_synchronous_is_named_in_an_async_run() -> None:
    import asyncio

    def wrap(self: Any, request: Any, handler: Callable[..., Any]) -> Any:
        return handler(request)

    stranger = type("Stranger", (AgentMiddleware,), {"wrap_model_call": wrap})()
    agent = Agent("head", model=ScriptedModel({"head": ["end"]}), middleware=[stranger])
    with raises_code("middleware_failed", match="needs awrap_model_call"):
        asyncio.run(agent.compile().ainvoke(TASK))


def test_a_tool_that_is_added_in_passing_is_refused_by_name(world: World) -> None:
    @tool
    def other() -> str:
        """Do something else."""
        return "other"

    class Adding(AgentMiddleware[Any, Any]):
        def wrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            return handler(request.override(tools=[*request.tools, other]))

        async def awrap_model_call(self, request: Any, handler: Callable[..., Any]) -> Any:
            return await handler(request.override(tools=[*request.tools, other]))

    model = ScriptedModel({"head": ["end"]})
    agent = Agent("head", model=model, middleware=[Adding()])
    with Session(agent, ":memory:") as session:
        with raises_code("middleware_failed", match="adds the tools other"):
            world.send(session, "go")


class Booking(AgentMiddleware[Any, Any]):
    """Has a tool of the name of another."""

    def __init__(self, *tools: Any) -> None:
        self.tools = tools


@tool
def report() -> str:
    """Report."""
    return "reported"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([Booking(book)], "duplicate_name"),
        ([Booking(report)], "invalid_name"),
        ([Diary(), Diary()], "duplicate_name"),
        ([Diary("a:b")], "invalid_name"),
        ([Diary], "invalid_field"),
        (["diary"], "invalid_field"),
        (Diary(), "invalid_field"),
        ("diary", "invalid_field"),
    ],
)
def test_bad_middleware_is_refused_when_the_agent_is_made(given: Any, error: Any) -> None:
    with raises_code(error):
        Agent("head", tools=[book], middleware=given)


def test_an_inherited_tool_of_a_name_that_is_taken_is_refused_when_the_tree_is_compiled() -> None:
    low = Agent("low", tools=[book], inherit_middleware=True)
    agent = Agent(
        "head",
        model=ScriptedModel({"head": [delegate("low", "go"), "end"], "low": ["done"]}),
        middleware=[Booking(book)],
        subordinates=[low],
    )
    with raises_code("duplicate_name"):
        agent.compile()


class Listing(AgentMiddleware[Any, Any]):
    """Returns the answer of a call in a list, as `create_agent` takes it."""

    def wrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        return [handler(request)]

    async def awrap_tool_call(self, request: Any, handler: Callable[..., Any]) -> Any:
        return [await handler(request)]


def test_wrap_may_return_the_answer_of_a_call_in_a_list(world: World) -> None:
    def work(said: Any) -> Any:
        return said[-1].text if said[-1].type == "tool" else Call("book", {"city": "Rome"})

    agent = Agent("head", model=ScriptedModel(work), tools=[book], middleware=[Listing()])
    with Session(agent, ":memory:") as session:
        assert "Rome" in world.send(session, "go").text
