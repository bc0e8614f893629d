"""After thinking, each open call goes to who does it; delegations of one thread go in order."""

from __future__ import annotations

from time import monotonic, time
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolCall, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END
from langgraph.types import Send

from echelons import Agent
from echelons.checkpoints.threads.segments import SavedHistory
from echelons.delegation.calls import RelayedRequest, RequestLimits
from echelons.delegation.policy import DelegationPolicy
from echelons.delegation.request import DelegationRequest
from echelons.graphs.edges import AfterReason, build_sends
from echelons.identity.lineage import (
    REQUESTS_KEY,
    THREADS_KEY,
    Identity,
    derive_request_id,
    derive_subordinate_thread_id,
)
from echelons.identity.thread_history import Head
from echelons.nodes.request_queue import QueuedRequest, RequestQueue
from echelons.run_context import CONTEXT_KEY, RunContext
from echelons.testing import ScriptedModel
from echelons.tree.agent_path import AgentPath

IDENTITY = Identity(agent="head", path=("head",), thread_id="root", tree="t")


def search(call_id: str) -> ToolCall:
    return ToolCall(name="search", args={"q": "x"}, id=call_id, type="tool_call")


def eat(call_id: str, subordinate: str = "eat") -> ToolCall:
    args = {"message": f"task {call_id}", "subordinate": subordinate, "reset": False}
    return ToolCall(name="call_subordinate", args=args, id=call_id, type="tool_call")


def said(*calls: ToolCall, **threads: str) -> AIMessage:
    """Return a reply with some calls; ``_1="a"`` gives call 1 the thread a."""
    given = {key.removeprefix("_"): thread for key, thread in threads.items()}
    return AIMessage("", id="m", tool_calls=[*calls], response_metadata={THREADS_KEY: given})


def sends(*messages: BaseMessage, depth: int = 2, **state: Any) -> list[Send]:
    """Return the sends that follow some messages."""

    def limits(_: str) -> RequestLimits:
        return RequestLimits(max(10, depth))

    found = build_sends({"messages": list(messages), **state}, IDENTITY, limits)
    assert isinstance(found, list)
    return found


def follows(*messages: BaseMessage, **state: Any) -> Any:
    return build_sends({"messages": list(messages), **state}, IDENTITY, lambda _: RequestLimits())


def orders(send: Send) -> list[QueuedRequest]:
    assert send.node == "delegate"
    [first], waiting = send.arg["queue"], send.arg.get("waiting", [])
    return [QueuedRequest.load(each) for each in (first, *waiting)]


# Without open calls


def test_a_plain_answer_ends_the_segment() -> None:
    assert follows(HumanMessage("x"), AIMessage("done")) == END


def test_a_state_without_any_reply_ends() -> None:
    assert follows(HumanMessage("x")) == END


def test_a_reply_with_mistakes_only_gives_the_model_another_go() -> None:
    mistake = ToolMessage("Error: no such tool", tool_call_id="1")

    assert follows(said(search("1")), mistake) == "reason"


def test_a_report_ends_the_segment() -> None:
    reported = ToolMessage("reported", tool_call_id="1")

    assert follows(said(search("1")), reported, response={"status": "partial"}) == END


def test_a_report_waits_for_the_calls_beside_it() -> None:
    reported = ToolMessage("reported", tool_call_id="1")

    [send] = sends(said(search("1"), search("2")), reported, response={"status": "partial"})

    assert send == Send("act", "2")


# Tool calls


def test_every_tool_call_is_sent_by_itself_and_only_itself() -> None:
    found = sends(HumanMessage("x"), said(search("1"), search("2")))

    assert found == [Send("act", "1"), Send("act", "2")]


def test_calls_that_share_an_id_are_each_sent_whole() -> None:
    reply = said(search("1"), search("1"))

    assert sends(HumanMessage("x"), reply) == [Send("act", [each]) for each in reply.tool_calls]


def test_a_call_that_is_answered_is_not_sent_again() -> None:
    found = sends(said(search("1"), search("2")), ToolMessage("done", tool_call_id="1"))

    assert found == [Send("act", "2")]


# Delegations


def test_a_delegation_carries_all_that_its_subordinate_needs() -> None:
    started = derive_subordinate_thread_id("root", "m", "1")

    [send] = sends(said(eat("1"), _1=started))

    [order] = orders(send)
    assert (order.call_id, order.thread_id, order.continues) == ("1", started, False)
    assert order.request.id == derive_request_id("root", "m", "1")
    assert (order.request.origin, order.request.current) == ("head", "eat")
    assert (order.request.task, order.request.path) == ("task 1", "head/eat")
    assert send.arg["head"] == {}


def test_delegations_to_one_thread_travel_together_and_in_order() -> None:
    found = sends(said(eat("1"), eat("2", "sleep"), eat("3"), _1="a", _2="b", _3="a"))

    assert [[order.call_id for order in orders(send)] for send in found] == [["1", "3"], ["2"]]


def test_a_thread_that_was_there_before_goes_on_from_its_end() -> None:
    head = Head(agent="eat", checkpoint_ns="ns", checkpoint_id="c")

    [send] = sends(said(eat("1"), _1="old"), heads={"old": head})

    assert send.arg["head"] == head
    [order] = orders(send)
    assert order.continues


def test_a_thread_that_an_earlier_call_of_the_message_starts_is_continued_by_the_next() -> None:
    started = derive_subordinate_thread_id("root", "m", "1")

    [send] = sends(said(eat("1"), eat("2"), _1=started, _2=started))

    assert [order.continues for order in orders(send)] == [False, True]


def test_a_thread_belongs_to_the_agent_that_it_was_started_for() -> None:
    head = Head(agent="eat", checkpoint_ns="ns", checkpoint_id="c")

    [send] = sends(said(eat("1", "sleep"), _1="old"), heads={"old": head})

    assert orders(send)[0].request.current == "eat"


def test_a_call_that_a_person_wrote_starts_a_thread_of_its_own() -> None:
    written = AIMessage("", id="m", tool_calls=[eat("1"), eat("2")])

    found = sends(written)

    assert [order.thread_id for send in found for order in orders(send)] == [
        derive_subordinate_thread_id("root", "m", "1"),
        derive_subordinate_thread_id("root", "m", "2"),
    ]


def test_a_call_that_a_person_wrote_wrongly_is_refused_before_anything_runs() -> None:
    wrong = ToolCall(name="call_subordinate", args={}, id="1", type="tool_call")

    [send] = sends(AIMessage("", id="m", tool_calls=[wrong]))
    [order] = orders(send)
    desk = RequestQueue({"eat": "eat"}, SavedHistory())

    assert desk.choose_node(order.stored(), {}) == "refuse"
    assert "no subordinate is called ''" in str(desk.find_refusal(order, {}))


def test_tools_come_before_delegations_and_nothing_is_left_out() -> None:
    found = sends(said(eat("1"), search("2"), eat("3", "sleep"), _1="a", _3="b"))

    assert [each.node for each in found] == ["act", "delegate", "delegate"]


@pytest.mark.parametrize(("depth", "hops"), [(2, 10), (10, 10), (11, 11), (32, 32)])
async def test_a_request_may_pass_as_many_agents_as_the_tree_is_deep(depth: int, hops: int) -> None:
    edge = AfterReason(depth, DelegationPolicy(), {})
    config: Any = {"metadata": IDENTITY.to_metadata()}
    state = {"messages": [said(eat("1"), _1="a")]}

    for [send] in (edge.invoke(state, config), await edge.ainvoke(state, config)):
        assert orders(send)[0].request.max_hops == hops


@pytest.mark.parametrize("hops", [1, 3, 10, 99])
async def test_a_request_may_pass_as_many_agents_as_the_policy_says(hops: int) -> None:
    edge = AfterReason(20, DelegationPolicy(max_hops=hops), {})
    config: Any = {"metadata": IDENTITY.to_metadata()}
    state = {"messages": [said(eat("1"), _1="a")]}

    for [send] in (edge.invoke(state, config), await edge.ainvoke(state, config)):
        assert orders(send)[0].request.max_hops == hops


@pytest.mark.parametrize(
    ("rules", "seconds"),
    [
        (DelegationPolicy(timeout=None), None),
        (DelegationPolicy(timeout=20), 20),
        (DelegationPolicy(timeout=20, request_timeout=15), 15),
        (DelegationPolicy(timeout=None, request_timeout=90), 90),
        (DelegationPolicy(), 240),
        (DelegationPolicy(request_timeout=230), 230),
    ],
)
async def test_a_request_says_by_when_it_must_be_answered(
    rules: DelegationPolicy, seconds: float | None
) -> None:
    edge = AfterReason(2, rules, {"eat": rules.compute_timeout(2)})
    config: Any = {"metadata": IDENTITY.to_metadata()}
    state = {"messages": [said(eat("1"), _1="a")]}

    before = time()
    for [send] in (edge.invoke(state, config), await edge.ainvoke(state, config)):
        request = orders(send)[0].request
        assert request.seconds == rules.request_timeout
        if seconds is None:
            assert request.deadline is None
        else:
            assert request.deadline is not None
            assert before + seconds <= request.deadline <= time() + seconds


def test_request_lasts_no_longer_than_its_superior() -> None:
    config: Any = {
        "metadata": IDENTITY.to_metadata(),
        "configurable": {CONTEXT_KEY: RunContext(deadline=monotonic() + 5)},
    }
    found = AfterReason(2, DelegationPolicy(), {"eat": 20}).invoke(
        {"messages": [said(eat("1"), _1="a")]}, config
    )

    deadline = orders(found[0])[0].request.deadline
    assert deadline is not None
    assert deadline <= time() + 5


def test_the_edge_sends_what_a_person_has_written_into_the_state() -> None:
    @tool
    def look_up(subject: str) -> str:
        """Look something up."""
        return f"found {subject}"

    config: Any = {"configurable": {"thread_id": "t"}}
    agent = Agent("root", model=ScriptedModel(["hello", "never", "seen"]), tools=[look_up])
    graph = agent.compile(InMemorySaver())
    graph.invoke({"messages": [("user", "go")]}, config)
    call = ToolCall(name="look_up", args={"subject": "Rome"}, id="call-1")
    graph.update_state(config, {"messages": [AIMessage("", tool_calls=[call])]}, as_node="reason")

    assert [each.name for each in graph.get_state(config).tasks] == ["act"]
    assert graph.invoke(None, config)["messages"][-2].text == "found Rome"


def test_the_edge_sends_a_request_as_its_message_notes_it() -> None:
    message = said(eat("1"), _1="a")
    note = {"deadline": 7.0, "budget": {"seconds": 5.0}, "max_hops": 12}
    noted = message.model_copy(
        update={"response_metadata": {**message.response_metadata, REQUESTS_KEY: {"1": note}}}
    )

    [send] = sends(noted)

    request = orders(send)[0].request
    assert (request.deadline, request.seconds, request.max_hops) == (7.0, 5.0, 12)


def test_a_relayed_request_is_sent_whole_where_its_message_notes_nothing() -> None:
    request = DelegationRequest(
        id="r",
        origin="boss",
        current="head",
        task="dinner",
        path=AgentPath("boss/head"),
        route=("eat", "fish"),
        budget={"seconds": 5.0},
    )

    [send] = sends(said(eat("1"), _1="a"), forward=RelayedRequest(request).stored())

    relayed = orders(send)[0].request
    assert (relayed.origin, relayed.current, relayed.route) == ("boss", "eat", ("fish",))
    assert (relayed.path, relayed.seconds) == ("boss/head/eat", 5.0)
