"""A request to a model begins with the one before, so that a cache of its provider serves it.

Each scenario is a tree at work in several turns. What breaks a prefix by its nature is named in
docs/prompts.md; here a cut and a pin of a memory are the only ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage, message_to_dict

from echelons import Agent, Budget, DelegationPolicy, Permissions, Session, Spawn
from echelons.identity.lineage import PROMPT_KEY
from echelons.memory import Memory
from echelons.prompts import load_memory_texts
from echelons.testing import Call, CallRecord, Reply, ScriptedModel, delegate, report
from tests.told_lines import is_said, list_spawned

if TYPE_CHECKING:
    from echelons import SqliteCheckpointer
    from tests.scenarios.conftest import World

TURNS = 3


def look(query: str) -> str:
    """Look something up."""
    return f"found {query}"


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def play(*steps: Any) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return a script of the steps of a task, the same for each task."""

    def answer(messages: Sequence[BaseMessage]) -> Any:
        [*_, task] = [place for place, each in enumerate(messages) if is_said(each)]
        step = steps[sum(each.type == "ai" for each in messages[task:])]
        return step(messages) if callable(step) else step

    return answer


def spawn(role: str, **arguments: Any) -> Call:
    return Call("spawn_subordinate", {"role": role, "message": "look", **arguments})


def dismiss_first(messages: Sequence[BaseMessage]) -> Call:
    return Call("dismiss_subordinate", {"name": list_spawned(messages)[0]})


def ask(question: str, **more: Any) -> Call:
    return Call("ask", {"question": question, **more})


def build_team(head: Any, mid: Any, low: Any, **fields: Any) -> Agent:
    """Return three levels, the middle one of which has a sibling."""
    model = ScriptedModel(
        {"head": head, "mid": mid, "low": low, "side": lambda _: "helped", "*": lambda _: "done"}
    )
    rules = Permissions(contact_user=True)
    below = Agent("low", tools=[look], permissions=rules)
    policy = DelegationPolicy(progress=True)
    middle = Agent(
        "mid",
        "Finds things",
        tools=[look],
        subordinates=[below],
        prompt="Be brief.",
    )
    fields = {"delegation": policy, **fields}
    return Agent("head", model=model, subordinates=[middle, Agent("side")], **fields)


def build_plain() -> Agent:
    return build_team(
        play([delegate("mid", "find it"), delegate("side", "help")], "done"),
        play([delegate("low", "find it"), Call("look", {"query": "x"})], report("partial", "half")),
        play(Call("look", {"query": "y"}), "it is y"),
    )


def build_asking() -> Agent:
    return build_team(
        play(delegate("mid", "find it"), ask("Which one?"), ask("And then?", wait=False), "done"),
        play(delegate("low", "find it"), ask("Which one?"), "the first"),
        play(ask("Where?", to="user", choices=["a", "b"]), Call("look", {"query": "y"}), "it is y"),
    )


def build_writing() -> Agent:
    say = Call("send_message", {"to": "superior", "message": "half done"})
    beside = Call("send_message", {"to": "side", "message": "look out"})
    return build_team(
        play([delegate("mid", "find it"), delegate("side", "help")], delegate("mid", "more"), "ok"),
        play(say, delegate("low", "find it"), [beside, Call("look", {"query": "x"})], "found"),
        play(Call("look", {"query": "y"}), "it is y"),
    )


def build_side_by_side() -> Agent:
    return build_team(
        play([delegate("mid", "this"), delegate("mid", "that")], delegate("mid", "on"), "done"),
        play(Call("look", {"query": "x"}), "found"),
        play("nothing"),
    )


def build_spawning() -> Agent:
    return build_team(
        play(
            [spawn("scout", keep=True), spawn("digger")],
            lambda messages: delegate(list_spawned(messages)[0], "again"),
            dismiss_first,
            [spawn("guide", kind="drone"), delegate("mid", "find it")],
            "done",
        ),
        play(delegate("low", "find it"), "found"),
        play("it is y"),
        permissions=Permissions(spawn=Spawn(total=50)),
    )


def build_dismissed() -> Agent:
    return build_team(
        play([delegate("mid", "find it"), delegate("side", "help")], "done"),
        play(Call("dismiss_subordinate", {"name": "low"}), Call("look", {"query": "x"}), "found"),
        play("it is y"),
        permissions=Permissions(spawn=Spawn()),
    )


def build_noting() -> Agent:
    pins = (Call("pin", {"text": "the code is 7"}), Call("recall", {"query": "code"}))
    return build_team(
        play([*pins, delegate("mid", "find it")], pins[1], "done"),
        play(pins[0], Call("look", {"query": "x"}), pins[1], "found"),
        play("it is y"),
        memory=Memory(budget=8_000, summarizer="extractive"),
    )


def build_budgeted() -> Agent:
    used = (60, 20)
    looking = [Reply(calls=[Call("look", {"query": str(n)})], usage=used) for n in range(4)]
    return build_team(
        play(*(Reply(calls=[delegate("mid", "go")], usage=used) for _ in range(2)), "done"),
        play(*looking, "found"),
        play("it is y"),
    )


def build_refusing() -> Agent:
    wrong = [Call("nothing", {}), Call("look", {}), delegate("nobody", "x"), delegate("mid", "go")]
    return build_team(
        play(wrong, [Call("look", {"quer": 1}), report("fulfilled", "x")], "done"),
        play([Call("pay", {}), Call("look", {"query": None})], "found"),
        play("it is y"),
    )


def build_remembering() -> Agent:
    return build_team(
        play(
            [spawn("scout", keep=True), Call("pin", {"text": "the code is 7"})],
            delegate("mid", "find it"),
            "done " * 900,
        ),
        play(delegate("low", "find it"), "found"),
        play("it is y"),
        memory=Memory(budget=4_000, recent=1, summarizer="extractive"),
        permissions=Permissions(spawn=Spawn(total=50, at_once=50)),
    )


SCENARIOS = {
    "plain": build_plain,
    "questions": build_asking,
    "messages": build_writing,
    "side conversations": build_side_by_side,
    "spawning": build_spawning,
    "dismissal": build_dismissed,
    "notes": build_noting,
    "budgets": build_budgeted,
    "refused calls": build_refusing,
    "a memory that cuts": build_remembering,
}


BREAKING = frozenset({"notes", "a memory that cuts"})


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_request_of_a_session_begins_with_the_request_before(
    world: World, saver: SqliteCheckpointer, scenario: str
) -> None:
    agent = SCENARIOS[scenario]()
    limits: Any = {}
    if scenario == "budgets":
        limits["budget"] = Budget(tokens=1_400)
    for number in range(TURNS):
        # Another object, as in another process.
        session = Session(agent, saver, thread="t")
        if number == 1:
            world.do(session, "send_message", "head", "Hurry.")
            if scenario == "dismissal":
                world.do(session, "dismiss", "head/side")
        result = world.send(session, f"task {number}", **limits)
        while result.questions:
            result = world.answer(session, {each.id: "a" for each in result.questions})

    cuts = check_prefixes(agent)
    assert (cuts > 0) is (scenario in BREAKING)


@pytest.mark.parametrize("scenario", ["plain", "side conversations", "spawning", "refused calls"])
def test_request_of_a_graph_begins_with_the_request_before(
    world: World, saver: SqliteCheckpointer, scenario: str
) -> None:
    agent = SCENARIOS[scenario]()
    for number in range(TURNS):
        config: Any = {"configurable": {"thread_id": "t"}}
        world.invoke(agent.compile(saver), {"messages": [HumanMessage(f"task {number}")]}, config)

    assert check_prefixes(agent) == 0


def check_prefixes(agent: Agent) -> int:
    """Check the requests of each thread of a tree; return how many came after a cut."""
    model = agent.model
    assert isinstance(model, ScriptedModel)
    threads = {mark: [*calls] for mark, calls in groupby(sorted(model.calls, key=_mark), _mark)}
    assert any(len(each) >= 2 * TURNS for each in threads.values())
    cuts = 0
    for calls in threads.values():
        for before, after in pairwise(calls):
            assert after.tools == before.tools
            earlier, later = _dump(before), _dump(after)
            if _read_memory(after) == _read_memory(before):
                assert later[: len(earlier)] == earlier
            else:
                cuts += 1
    return cuts


def _mark(call: CallRecord) -> str:
    """Return the mark of a request, which is that of its thread."""
    return str(call.messages[0].text).rpartition("Only lines with ")[2]


def _read_memory(call: CallRecord) -> str:
    """Return what a memory has put into the instructions: summaries and pins."""
    text = str(call.messages[0].text)
    places = [text.find(each) for each in load_memory_texts().values()]
    return text[min((each for each in places if each > 0), default=len(text)) :]


def _dump(call: CallRecord) -> list[str]:
    return [json.dumps(_read(each), sort_keys=True, default=str) for each in call.messages]


def _read(message: BaseMessage) -> Any:
    """Return what a provider reads of a message; its metadata and artifact are ours."""
    data = message_to_dict(message)
    data["data"].pop("artifact", None)
    assert PROMPT_KEY not in data["data"].get("additional_kwargs", {})
    return data
