"""Whatever a model says, every call is answered once and the tree goes on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from echelons import Agent, Permissions, Session, Spawn, SqliteCheckpointer, ThreadStore
from echelons.checkpoints.threads.trace import Thread
from echelons.testing import (
    Call,
    OpenAIServer,
    Reply,
    ScriptedModel,
    delegate,
    delegate_many,
    report,
)
from tests.error_codes import raises_code
from tests.failure_ids import without_conversation_ids, without_ids

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

GO = {"messages": [("user", "go")]}
ROOT: Any = {"configurable": {"thread_id": "root"}}
ASK_MID = delegate("mid", "work")
ASK_LEAF = delegate("leaf", "work")


def team(head: Any, mid: Any = ("mid done",), leaf: Any = ("leaf done",)) -> Agent:
    """Return a tree of three levels; each agent plays its script."""
    model = ScriptedModel({"head": head, "mid": mid, "leaf": leaf})
    return Agent("head", model=model, subordinates=[Agent("mid", subordinates=[Agent("leaf")])])


def threads(saver: SqliteCheckpointer) -> dict[str, list[Thread]]:
    """Return all threads of the root by agent, and check that every link holds."""
    store = ThreadStore(saver)
    found: dict[str, list[Thread]] = {"head": [store.get("root")]}
    for link in store.verify("root"):
        assert str(link.state) == "ok"
        found.setdefault(link.agent, []).append(store.get(link.sub_agent_thread_id))
    for thread in (each for several in found.values() for each in several):
        check_answers(thread.messages)
    return found


def check_answers(messages: Sequence[BaseMessage]) -> None:
    """Check that after each message of a model exactly its own calls are answered, once each."""
    open_calls: Counter[str] = Counter()
    for message in messages:
        if isinstance(message, ToolMessage):
            open_calls[message.tool_call_id] -= 1
        else:
            assert not +open_calls and not -open_calls
            open_calls.clear()
        if isinstance(message, AIMessage):
            calls = [*message.tool_calls, *message.invalid_tool_calls]
            open_calls.update(str(call["id"]) for call in calls)
            assert all(count == 1 for count in open_calls.values())
    assert not +open_calls and not -open_calls


def told(thread: Thread) -> list[str]:
    """Return what a thread's calls were answered."""
    texts = [str(each.text) for each in thread.messages if isinstance(each, ToolMessage)]
    return [*map(without_conversation_ids, texts)]


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (Call("nope"), "there is no such tool; the tools are: call_subordinate, report"),
        (Call(""), "there is no such tool"),
        (Call("call_subordinate", '{"message": "go'), "Error"),
        (Call("nope", "[[["), "Error"),
        (delegate("nobody", "go"), "no subordinate is called 'nobody'; name one of: leaf"),
        (delegate("mid", "go"), "no subordinate is called 'mid'; name one of: leaf"),
        (
            Call("call_subordinate", {"message": "go", "profile": "poet"}),
            "profile: you may spawn no subordinates",
        ),
        (delegate("leaf", ""), "message: String should have at least 1 character"),
        (Call("call_subordinate"), "message: Field required"),
        (Call("call_subordinate", {"message": ["go"]}), "message: Input should be a valid string"),
        (Call("call_subordinate", {"message": "go", "reset": "perhaps"}), "reset: Input should be"),
        (
            Call("call_subordinate", {"message": "go", "subordinate": 7}),
            "subordinate: Input should",
        ),
        (report("great", "x"), "status: Input should be 'fulfilled', 'partial', 'unable'"),
        (report("partial", "x", confidence=7), "confidence: Input should be less than or equal"),
        (Call("report"), "status: Field required"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_call_that_cannot_be_done_is_answered_and_the_agent_has_another_go(
    world: World, saver: SqliteCheckpointer, call: Call, answer: str
) -> None:
    graph = team([ASK_MID, "over"], mid=[call, "as well as I could"]).compile(saver)

    out = world.invoke(graph, GO, ROOT)

    [mid] = threads(saver)["mid"]
    assert answer in told(mid)[0]
    assert told(threads(saver)["head"][0]) == ["as well as I could"]
    assert out["messages"][-1].text == "over"


def test_wrong_calls_of_a_message_do_not_block_the_right_ones(
    world: World, saver: SqliteCheckpointer
) -> None:
    calls = [Call("nope"), ASK_LEAF, Call("call_subordinate", "{{"), delegate("leaf", "", id="e")]
    graph = team([ASK_MID, "over"], mid=[calls, "mid done"]).compile(saver)

    world.invoke(graph, GO, ROOT)

    [mid] = threads(saver)["mid"]
    assert len(told(mid)) == 4
    assert [text.startswith("Error") for text in told(mid)].count(False) == 1
    assert "leaf done" in told(mid)


@pytest.mark.parametrize("spelling", [True, "true", "True", 1])
def test_a_reset_may_be_spelled_as_models_spell_it(
    world: World, saver: SqliteCheckpointer, spelling: Any
) -> None:
    again = Call("call_subordinate", {"message": "anew", "reset": spelling})
    graph = team([ASK_MID, again, "over"]).compile(saver)

    world.invoke(graph, GO, ROOT)

    assert len(threads(saver)["mid"]) == 2


def test_an_empty_reply_ends_the_turn_and_is_no_answer_to_a_superior(
    world: World, saver: SqliteCheckpointer
) -> None:
    graph = team([ASK_MID, ""], mid=[""]).compile(saver)

    out = world.invoke(graph, GO, ROOT)

    assert out["messages"][-1].text == ""
    assert told(threads(saver)["head"][0]) == ["[unable] empty: it has answered nothing"]


def test_of_two_reports_in_a_message_the_first_counts(
    world: World, saver: SqliteCheckpointer
) -> None:
    both = [report("unable", "", reason="no boat"), report("fulfilled", "sailed")]
    graph = team([ASK_MID, "over"], mid=[both]).compile(saver)

    world.invoke(graph, GO, ROOT)

    assert told(threads(saver)["head"][0]) == ["[unable] no boat"]


def test_root_has_no_superior_to_report_to(world: World, saver: SqliteCheckpointer) -> None:
    graph = team([report("partial", "half"), "over"]).compile(saver)

    out = world.invoke(graph, GO, ROOT)

    assert told(threads(saver)["head"][0])[0].startswith("Error: there is no such tool")
    assert out["messages"][-1].text == "over"


def call(message: str, id_: str | None) -> dict[str, Any]:
    args = {"message": message, "reset": True}
    return {"name": "call_subordinate", "args": args, "id": id_, "type": "tool_call"}


@pytest.mark.parametrize(
    "ids",
    [
        ["x", "x", "x"],
        ["x", "x", "x-2"],
        ["x-2", "x", "x"],
        [None, None, None],
        [None, "call-1", "call"],
        ["", "", ""],
        ["/", "a/b", "a"],
        ["ü", "\n", " "],
    ],
    ids=repr,
)
def test_calls_with_repeated_missing_or_strange_ids_each_have_a_thread_and_an_answer(
    world: World, saver: SqliteCheckpointer, ids: list[str | None]
) -> None:
    message = AIMessage("", tool_calls=[call(f"task {n}", id_) for n, id_ in enumerate(ids)])
    graph = team([message, "over"], mid=lambda messages: messages[-1].text).compile(saver)

    world.invoke(graph, GO, ROOT)

    found = threads(saver)
    assert told(found["head"][0]) == ["task 0", "task 1", "task 2"]
    assert [each.messages[0].text for each in found["mid"]] == ["task 0", "task 1", "task 2"]


def test_the_same_call_id_in_later_messages_and_turns_starts_other_threads(
    world: World, saver: SqliteCheckpointer
) -> None:
    steps = [AIMessage("", tool_calls=[call("a", "x")]), AIMessage("", tool_calls=[call("b", "x")])]
    graph = team([*steps, "over"], mid=lambda messages: messages[-1].text).compile(saver)

    world.invoke(graph, GO, ROOT)
    world.invoke(graph, GO, ROOT)

    found = threads(saver)
    assert told(found["head"][0]) == ["a", "b", "a", "b"]
    assert len({each.id for each in found["mid"]}) == 4


def test_a_model_that_gives_all_its_messages_one_id_loses_none_of_them(
    world: World, saver: SqliteCheckpointer
) -> None:
    steps = [
        AIMessage("", id="same", tool_calls=[call("a", "x")]),
        AIMessage("", id="same", tool_calls=[call("b", "x")]),
        AIMessage("over", id="same"),
    ]
    graph = team(steps, mid=lambda messages: messages[-1].text).compile(saver)

    world.invoke(graph, GO, ROOT)

    found = threads(saver)
    assert told(found["head"][0]) == ["a", "b"]
    assert len(found["head"][0].messages) == 6
    assert len(found["mid"]) == 2


GARBAGE = [None, "just text", 7, {"content": "x"}, [AIMessage("x")], HumanMessage("x")]


class Garbled(RunnableLambda[Any, Any]):
    """A model that returns what no model returns."""

    def __init__(self, garbage: Any) -> None:
        super().__init__(lambda _: garbage)

    def bind_tools(self, tools: Any, **kwargs: Any) -> Garbled:
        return self


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda each: type(each).__name__)
def test_a_subordinate_whose_model_returns_no_message_is_unable(
    world: World, saver: SqliteCheckpointer, garbage: Any
) -> None:
    model: Any = Garbled(garbage)
    mid = Agent("mid", subordinates=[Agent("leaf", model=model)])
    scripts: Any = {"head": [ASK_MID, "over"], "mid": [ASK_LEAF, "mid done"]}
    head = Agent("head", model=ScriptedModel(scripts), subordinates=[mid])

    world.invoke(head.compile(saver), GO, ROOT)

    kind = type(garbage).__name__
    [heard] = told(threads(saver)["mid"][0])
    assert without_ids(heard) == f"[unable] TypeError: the model of 'leaf' returned {kind}"


def test_failing_model_makes_only_its_agent_unable(
    world: World, saver: SqliteCheckpointer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    error = RuntimeError("overloaded\n  File secret.py, line 1")
    both = [delegate("mid", "one", reset=True), delegate("mid", "two", reset=True)]

    def leaf(messages: Sequence[BaseMessage]) -> Any:
        return error if messages[-1].text == "one" else "leaf done"

    def mid(messages: Sequence[BaseMessage]) -> Any:
        last = messages[-1]
        return delegate("leaf", str(last.text)) if last.type == "human" else str(last.text)

    graph = team([both, "over"], mid=mid, leaf=leaf).compile(saver)

    world.invoke(graph, GO, ROOT)

    failed, done = told(threads(saver)["head"][0])
    assert (without_ids(failed), done) == ("[unable] RuntimeError: overloaded", "leaf done")


def test_a_root_whose_model_fails_raises_and_goes_on_when_the_cause_is_gone(
    world: World, saver: SqliteCheckpointer
) -> None:
    down = [RuntimeError("overloaded")]

    def head(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type == "human":
            return ASK_MID
        return down[0] if down else "over"

    agent = team(head)
    with Session(agent, saver, thread="t") as session:
        with pytest.raises(RuntimeError, match="overloaded"):
            world.send(session, "go")
        with pytest.raises(RuntimeError, match="overloaded"):
            world.resume(session)
        down.clear()
        result = world.resume(session)

    assert result.text == "over"
    assert isinstance(agent.model, ScriptedModel)
    assert [each.agent for each in agent.model.finished_calls] == ["head", "mid", "head"]


def test_a_megabyte_goes_down_and_comes_up_whole(world: World, saver: SqliteCheckpointer) -> None:
    much = "ä€😀 " * 262_144
    graph = team([delegate("mid", much), "over"], mid=lambda messages: messages[-1].text).compile(
        saver
    )

    world.invoke(graph, GO, ROOT)

    found = threads(saver)
    assert told(found["head"][0]) == [much]
    assert found["mid"][0].messages[0].text == much


@pytest.mark.parametrize("text", ["a\x00b", "\u202e\ufeff\x1b[31m", "}{\"'`--;"], ids=ascii)
def test_control_characters_are_text_like_any_other(
    world: World, saver: SqliteCheckpointer, text: str
) -> None:
    graph = team([delegate("mid", text), text], mid=[Reply(text)]).compile(saver)

    out = world.invoke(graph, GO, ROOT)

    found = threads(saver)
    assert out["messages"][-1].text == text
    assert [each.text for each in found["mid"][0].messages] == [text, text]
    assert told(found["head"][0]) == [text]


def test_lone_surrogates_in_what_a_model_says_cost_no_more_than_themselves(
    world: World, saver: SqliteCheckpointer
) -> None:
    graph = team(
        [delegate("mid", "to \ud800 Rome"), "went \udfff there"], mid=["was \udc80 fine"]
    ).compile(saver)

    world.invoke(graph, GO, ROOT)

    found = threads(saver)
    texts = [each.text for each in (*found["head"][0].messages, *found["mid"][0].messages)]
    assert all(text.isascii() or "\ufffd" in text for text in texts)
    assert [text.split()[0] for text in texts if text] == ["go", "was", "went", "to", "was"]


def test_lone_surrogates_in_what_a_caller_says_are_refused_and_stop_nothing(
    world: World, saver: SqliteCheckpointer
) -> None:
    graph = team([ASK_MID, "over"]).compile(saver)

    with raises_code("invalid_text", match=r"half a character"):
        world.invoke(graph, {"messages": [("user", "go \ud800")]}, ROOT)
    out = world.invoke(graph, GO, ROOT)

    assert out["messages"][-1].text == "over"
    assert [each.text for each in threads(saver)["head"][0].messages if each.type == "human"] == [
        "go"
    ]


def pay(amount: int) -> str:
    """Pay an amount."""
    PAID.append(amount)
    return f"paid {amount}"


PAID: list[int] = []
CUT_OFF = (
    "Error: your reply was cut off (finish_reason: length), so none of its calls has been run; "
    "make them again, with shorter arguments or fewer in one message"
)


@pytest.mark.parametrize(
    "said",
    [
        [Call("pay", {"amount": 10})],
        # Nothing tells the calls that are whole from the one that is not.
        [Call("pay", {"amount": 1000}), Call("pay", {"amount": 10})],
        [delegate("leaf", "Pay 10")],
        [delegate_many(delegate("leaf", "Pay 1000"), delegate("twig", "Pay 10"))],
        [report("fulfilled", "I have pa")],
        [Call("pay", '{"amount": 10')],
        [Call("nope")],
    ],
    ids=["tool", "tools", "delegation", "several", "report", "broken", "unknown"],
)
def test_of_a_reply_that_was_cut_off_nothing_is_run(
    world: World, saver: SqliteCheckpointer, said: list[Call]
) -> None:
    PAID.clear()
    half = Reply(calls=said, finish_reason="length")
    model = ScriptedModel(
        {"head": [ASK_MID, "over"], "mid": [half, Call("pay", {"amount": 1000}), "all paid"]}
    )
    mid = Agent("mid", tools=[pay], subordinates=[Agent("leaf"), Agent("twig")])
    graph = Agent("head", model=model, subordinates=[mid]).compile(saver)

    world.invoke(graph, GO, ROOT)

    [thread] = threads(saver)["mid"]
    assert told(thread) == [CUT_OFF] * len(said) + ["paid 1000"]
    assert PAID == [1000]
    assert [each.agent for each in model.calls] == ["head", "mid", "mid", "mid", "head"]
    assert told(threads(saver)["head"][0]) == ["all paid"]


@pytest.mark.parametrize("streaming", [False, True])
def test_half_of_a_provider_s_json_is_not_run(
    world: World, saver: SqliteCheckpointer, streaming: bool
) -> None:
    PAID.clear()
    half = Reply(calls=[Call("pay", '{"amount": 10')], finish_reason="length")
    with OpenAIServer([half, "I could not pay."]) as server:
        model: Any = ChatOpenAI(
            model="m", base_url=server.url, api_key=SecretStr("none"), streaming=streaming
        )
        graph = Agent("head", model=model, tools=[pay]).compile(saver)
        out = world.invoke(graph, GO, ROOT)

    assert PAID == []
    assert [each.text for each in out["messages"]][2:] == [CUT_OFF, "I could not pay."]


ODD_KEYS: Any = {1: {2.5: "a"}, None: {3}, (1, 2): (4,), "text\ud800": float("nan"), "x": object()}


def build_taker(way: str, took: list[Any]) -> tuple[Agent, Any]:
    """Return a tree in which one agent calls a tool with odd arguments, and what may be spawned."""

    def take(value: Any) -> str:
        """Take a value."""
        took.append(value)
        return "taken"

    def call(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type != "human":
            return "done"
        odd: Any = {"name": "take", "args": {"value": ODD_KEYS}, "id": "1", "type": "tool_call"}
        return AIMessage("", tool_calls=[odd])

    def lead(below: str) -> Any:
        spawn = Call("spawn_subordinate", {"role": "leaf", "profile": "leaf", "message": "go"})
        first = spawn if way == "spawned" else delegate(below, "go")
        return lambda said: first if said[-1].type == "human" else "done"

    model = ScriptedModel({"leaf": call, "mid": lead("leaf"), "head": lead("mid"), "*": call})
    # In a stream, arguments are texts.
    model.disable_streaming = True
    leaf: Any = Agent("leaf", model=model, tools=[take])
    if way == "spawned":
        spawn = Spawn(profiles=("leaf",))
        return Agent("head", model=model, permissions=Permissions(spawn=spawn)), {"leaf": leaf}
    if way == "graph":
        leaf = RunnableLambda(lambda task: call([HumanMessage(str(task))]), name="leaf")
    for name in ("mid", "head") if way not in ("root", "compiled") else ():
        leaf = Agent(name, model=model, subordinates=[leaf])
    return leaf, {}


@pytest.mark.parametrize("way", ["root", "compiled", "level 3", "spawned", "graph"])
def test_arguments_that_are_no_json_leave_a_thread_that_answers(
    world: World, saver: SqliteCheckpointer, way: str
) -> None:
    took = list[Any]()
    agent, spawnable = build_taker(way, took)
    for _ in range(2):
        if way == "compiled":
            out = world.invoke(agent.compile(saver), GO, ROOT)
            text = out["messages"][-1].text
        else:
            with Session(agent, saver, thread="root", spawnable=spawnable) as session:
                text = world.send(session, "go").text
                assert session.usage().total.model_calls
        assert text == "done"

    for value in took:
        assert [*value] == ["1", "None", "(1, 2)", "text\ufffd", "x"]
        assert (value["1"], value["None"], value["(1, 2)"]) == ({"2.5": "a"}, [3], [4])
        assert value["x"].startswith("<object object")
    assert len(took) == (0 if way == "graph" else 2)
