"""A memory of a long conversation: within its budget, nothing pinned lost, everything found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from math import ceil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from benchmarks.counting import Counter, Counts
from echelons import Agent, Session
from echelons.identity.lineage import PIN_KEY, PROMPT_KEY
from echelons.memory import Memory
from echelons.testing import Call, Reply, ScriptedModel, delegate
from echelons.workspace_tools import file_tools
from tests.error_codes import raises_code
from tests.proof import sample

if TYPE_CHECKING:
    from tests.scenarios.conftest import World

TURNS = sample(60, 2000)
"""Turns of the long conversations."""


@tool
def fetch(size: int) -> str:
    """Fetch a page of a size."""
    return f"begin {'x' * size} end"


def follow(steps: Any) -> Any:
    left = iter(steps)
    return lambda messages: next(left)


def remembering(steps: Any, budget: int = 4000, **more: Any) -> tuple[Agent, ScriptedModel]:
    """Return an agent with a memory whose model follows steps across turns."""
    model = ScriptedModel({"head": follow(steps)})
    memory = Memory(**{"budget": budget, "recent": 4, "summarizer": "extractive", **more})
    return Agent("head", model=model, tools=[fetch], memory=memory), model


def sizes(model: ScriptedModel) -> list[int]:
    return [count_tokens_approximately(call.messages) for call in model.calls]


def instructions(messages: Sequence[BaseMessage]) -> str:
    return str(messages[0].text)


def test_a_long_conversation_stays_within_its_budget_and_its_facts_are_found(world: World) -> None:
    rng, pins = Random(4711), list[str]()

    def steps() -> Iterator[Any]:
        for turn in range(TURNS):
            if rng.random() < 0.1:
                sizes = [rng.choice([0, 500, 5000, 60_000]) for _ in range(rng.randint(1, 3))]
                yield [Call("fetch", {"size": size}) for size in sizes]
            if turn % (TURNS // 10) == 4:
                pins.append(
                    f"the code of turn {turn} is {rng.random()} {'p' * rng.randint(0, 150)}"
                )
                yield Call("pin", {"text": pins[-1]})
            yield f"In {turn} the hotel is Roma-{turn}. {'It has rooms. ' * rng.randint(0, 100)}"
        yield Call("recall", {"query": "Roma-3"})
        yield "Roma-3"

    agent, model = remembering(steps())
    with Session(agent, ":memory:") as session:
        for turn in range(TURNS):
            known = [*pins]
            task = f"Find a hotel for day {turn}. {'It has to be near. ' * rng.randint(0, 80)}"
            world.send(session, task)
            assert all(each in instructions(model.calls[-1].messages) for each in known)
            assert max(sizes(model)) <= 4000
            # What each call was shown would have the square of the turns.
            del model.calls[:-1]
        world.send(session, "Which was the hotel of day 3?")
    assert len(pins) == 10
    assert "In 3 the hotel is Roma-3." in str(model.calls[-1].messages[-1].text)


def test_a_late_turn_costs_no_more_than_without_a_memory() -> None:
    def count_turns(memory: Memory | None) -> list[int]:
        model = ScriptedModel({"head": lambda _: "It is near. " * 20})
        counter, samples = Counter(), list[Counts]()
        agent = Agent("head", model=model, memory=memory)
        with counter.watching(), Session(agent, ":memory:") as session:
            for turn in range(sample(40, 500)):
                session.send(f"Find a hotel for day {turn}. {'Look around. ' * 20}").result()
                del model.calls[:]
            # As many as come together before they are summarised: one of them pays for it.
            for turn in range(5):
                with counter.count(samples):
                    session.send(f"And one for night {turn}. {'Look. ' * 20}").result()
                del model.calls[:]
        return [each.calls for each in samples]

    remembered = count_turns(Memory(budget=4000, recent=4, summarizer="extractive"))
    plain = count_turns(None)
    # Two further tools and the window cost something; a longer conversation costs more without.
    assert sorted(remembered)[2] <= sorted(plain)[2] * sample(1.15, 1.0)
    # One of the five has made the summaries.
    assert max(remembered) <= max(plain) * sample(1.3, 1.1)


def reporting(rates: Iterator[float], texts: Sequence[str], reported: list[int]) -> ScriptedModel:
    """Return a model that reports so many tokens for each character, and notes them."""

    class Reporting(ScriptedModel):
        def __init__(self) -> None:
            super().__init__({"head": answer})

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            schemas.append(count_tokens_approximately([], tools=tools))
            return super().bind_tools(tools, **kwargs)

    def answer(messages: Sequence[BaseMessage]) -> Any:
        reported.append(ceil(sum(len(str(each.text)) for each in messages) * next(rates)))
        return Reply(texts[len(reported) % len(texts)], usage=(reported[-1] + schemas[-1], 40))

    schemas: list[int] = []
    return Reporting()


def test_what_the_model_reports_of_other_scripts_is_within_the_budget(world: World) -> None:
    reported: list[int] = []
    # Of such a script a token is one character, and not four.
    model = reporting(repeat(1), ["旅館" * 40, "宿" * 200], reported)
    agent = Agent("head", model=model, memory=Memory(budget=4000, summarizer="extractive"))
    with Session(agent, ":memory:") as session:
        for turn in range(60):
            world.send(session, f"{turn} 日の宿を探してください。" * 8)
        replies = session.thread_store.get(session.thread_id).messages[1::2]
    noted = [each.response_metadata[PROMPT_KEY] for each in replies]
    assert [each["counted_by"] for each in noted][1:] == ["usage"] * 59
    assert 2500 < max(reported) <= 4000
    assert any("upto" in each for each in noted)


def test_summaries_that_were_made_for_another_model_are_cut(world: World) -> None:
    reported: list[int] = []
    rates = chain(repeat(0.25, 60), repeat(1))
    model = reporting(rates, ["Fine. " * 60], reported)
    agent = Agent("head", model=model, memory=Memory(budget=2500, summarizer="extractive"))
    with Session(agent, ":memory:") as session:
        for turn in range(80):
            world.send(session, f"{turn}. {'Look for another one. ' * 15}")
    # The first call of the other model is counted as those before it were.
    assert max([*reported[:60], *reported[61:]]) <= 2500
    assert reported[60] > 2500


turns = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 3000)),
        st.tuples(st.just("fetch"), st.sampled_from([0, 500, 5000, 60_000])),
        st.tuples(st.just("pin"), st.integers(1, 800)),
    ),
    min_size=1,
    max_size=sample(25, 60),
)


@settings(
    max_examples=sample(8, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(turns)
def test_whatever_is_said_each_prompt_fits_and_no_pin_is_lost(
    script: list[tuple[str, int]],
) -> None:
    def steps() -> Iterator[Any]:
        for number, (kind, size) in enumerate(script):
            if kind == "fetch":
                yield [Call("fetch", {"size": size}), Call("fetch", {"size": size})]
            if kind == "pin":
                yield Call("pin", {"text": f"pin {number}: {'p' * size}"})
            yield f"answer {number} {'a' * (size if kind == 'say' else 0)}"

    agent, model = remembering(steps(), budget=4000)
    with Session(agent, ":memory:") as session:
        for number in range(len(script)):
            session.send(f"task {number}. {'t' * (number * 97 % 1500)}").result()
    assert max(sizes(model)) <= 4000
    kept: list[str] = []
    for call in model.calls:
        assert all(each in instructions(call.messages) for each in kept)
        kept += [
            str(each.response_metadata[PIN_KEY])
            for each in call.messages
            if PIN_KEY in each.response_metadata
            and str(each.response_metadata[PIN_KEY]) not in kept
        ]


def test_no_call_is_shown_without_its_result_nor_a_result_without_its_call(world: World) -> None:
    loop = [Call("fetch", {"size": 900 + number}) for number in range(30)]
    agent, model = remembering([*loop, "done"], budget=1500)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "Fetch thirty pages.").text == "done"
    assert max(sizes(model)) <= 1500
    for call in model.calls:
        shown = call.messages
        # The task stays, however many steps are summarised.
        assert "Fetch thirty pages." in [str(each.text) for each in shown]
        made = {
            each["id"] for one in shown if isinstance(one, AIMessage) for each in one.tool_calls
        }
        answered = {each.tool_call_id for each in shown if each.type == "tool"}  # type: ignore[attr-defined]
        assert made == answered


def test_what_cannot_fit_is_an_error_and_the_turn_goes_on_with_a_larger_budget(
    world: World, tmp_path: Path
) -> None:
    database = str(tmp_path / "long.sqlite")
    agent, _ = remembering(["never"], budget=600)
    with Session(agent, database) as session:
        with raises_code("context_too_large", match="'head' would read") as caught:
            world.send(session, "t" * 4000)
        assert (caught.value.agent, caught.value.budget) == ("head", 600)
    agent, _ = remembering(["done"], budget=6000)
    with Session(agent, database) as session:
        assert world.resume(session).text == "done"


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("levels", [1, 3])
def test_arguments_of_calls_that_have_run_are_shortened(
    world: World, tmp_path: Path, levels: int, signed: bool
) -> None:
    text = "word " * 18_000
    thought = {"type": "thinking", "thinking": "I write it down.", "signature": "c2lnbmVk"}
    thoughts: Any = [thought]
    call = Call("write_file", {"path": "a.txt", "text": text})

    def write(messages: Sequence[BaseMessage]) -> Any:
        if messages[-1].type != "human" or not str(messages[-1].text).endswith("Write"):
            return "written"
        return Reply(thoughts, calls=[call]) if signed else call

    script: Any = {"writer": write, "north": [delegate("writer", "Write"), "written"]}
    script["head"] = [delegate("north", "Write"), "written"]
    model = ScriptedModel(script)
    memory = Memory(summarizer="extractive")
    agent = Agent("writer", model=model, tools=file_tools(), memory=memory)
    for name in ("north", "head")[: levels - 1]:
        agent = Agent(name, model=model, subordinates=[agent])
    with Session(agent, ":memory:", workspace=tmp_path) as session:
        assert world.send(session, "Write").text == "written"
    last = next(each.messages for each in model.calls if "a.txt" in str(each.messages))
    assert count_tokens_approximately(last) <= memory.budget
    assert "characters left out" in str(last)
    assert signed == ("A step of yours" in str(last[-1].text))


def test_a_first_prompt_fits_where_a_token_has_three_characters(world: World) -> None:
    agent, model = remembering([Call("fetch", {"size": 5000}), "done"], budget=1500)
    with Session(agent, ":memory:") as session:
        assert world.send(session, "Look. " * 200).text == "done"
    for call in model.calls:
        assert sum(len(str(each.text)) for each in call.messages) <= 1500 * 3


def test_a_pin_beyond_a_quarter_is_refused_with_the_limit(world: World) -> None:
    both = [Call("pin", {"text": "p" * 2000}), Call("pin", {"text": "q" * 2500})]
    agent, model = remembering([both, Call("pin", {"text": 7}), Call("recall", {}), "done"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
    results = [str(each.text) for each in model.calls[-1].messages if each.type == "tool"]
    assert results[0] == "pinned"
    assert "all pins together may have 1,000, a quarter of the memory" in results[1]
    assert "give a text" in results[2]
    assert "give a text" in results[3]


@pytest.mark.parametrize("query", ['" OR *', "NEAR(a b)", "said:", "*", "", "Roma'); DROP", "ünï"])
def test_a_query_is_data(world: World, query: str) -> None:
    agent, model = remembering(["Roma, says Ünï", Call("recall", {"query": query}), "done"])
    with Session(agent, ":memory:") as session:
        world.send(session, "go")
        assert world.send(session, "look").text == "done"
    assert model.calls[-1].messages[-1].type == "tool"


def test_each_agent_of_a_tree_remembers_and_finds_its_own_thread_alone(world: World) -> None:
    memory = Memory(budget=900, recent=1, summarizer="extractive")
    rounds = range(12)
    heads = [step for n in rounds for step in (delegate("mid", f"mid {n}"), f"h{n}")]
    mids = [step for n in rounds for step in (delegate("leaf", f"leaf {n}"), f"m{n}")]
    leaves = [*(f"secret {n}" for n in range(11)), Call("recall", {"query": "mid"}), "x"]
    model = ScriptedModel({"head": follow(heads), "mid": follow(mids), "leaf": follow(leaves)})
    leaf = Agent("leaf", memory=memory)
    mid = Agent("mid", memory=memory, subordinates=[leaf])
    head = Agent("head", model=model, memory=memory, subordinates=[mid])
    with Session(head, ":memory:") as session:
        for n in rounds:
            world.send(session, f"go {n}")
    calls = [call for call in model.calls if call.agent == "leaf"]
    told = instructions(calls[-1].messages)
    assert "leaf 0" in told
    assert "mid 0" not in told
    assert "nothing in this conversation" in str(calls[-1].messages[-1].text)
    assert max(sizes(model)) <= 900


def test_a_fork_has_the_summaries_and_pins_of_its_past(world: World) -> None:
    agent, _ = remembering([f"answer {n}" for n in range(40)], budget=900, recent=1)
    saver = InMemorySaver()
    graph = agent.compile(saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    for n in range(12):
        world.invoke(graph, {"messages": [("user", f"task {n}")]}, config)
    past = [each for each in graph.get_state_history(config) if not each.next][6]
    told = [
        each.response_metadata[PROMPT_KEY]
        for each in past.values["messages"]
        if "upto" in each.response_metadata.get(PROMPT_KEY, {})
    ][-1]
    world.invoke(graph, {"messages": [("user", "another")]}, past.config)
    forked = graph.get_state(config).values["messages"]
    # What is summarised stays in the thread.
    assert "task 0" in [str(each.text) for each in forked]
    later = [each for each in forked if "upto" in each.response_metadata.get(PROMPT_KEY, {})]
    assert told in [each.response_metadata[PROMPT_KEY] for each in later]


def test_a_resumed_turn_summarises_nothing_again(world: World) -> None:
    asked: list[str] = []

    @tool
    def ask() -> str:
        """Ask."""
        return f"said {interrupt('well?')}"

    def answer(messages: Sequence[BaseMessage]) -> Any:
        if "Summarise these notes" in str(messages[0].text):
            asked.append(str(messages[-1].text))
            return "in short"
        tasks = [str(each.text) for each in messages if each.type == "human"]
        asks = tasks[-1] == "task 19" and messages[-1].type != "tool"
        return Call("ask", {}) if asks else "well done"

    model = ScriptedModel({"*": answer})
    memory = Memory(budget=900, recent=1, summarizer="model")
    agent = Agent("head", model=model, tools=[ask], memory=memory)
    with Session(agent, ":memory:") as session:
        for n in range(19):
            world.send(session, f"task {n}")
        result = world.send(session, "task 19")
        before = [*asked]
        assert before
        [question] = result.questions
        world.answer(session, {question.id: "yes"})
    assert asked == before


def test_a_summary_counts_as_a_call_and_a_failing_one_is_an_extract(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(messages: Sequence[BaseMessage]) -> Any:
        if "Summarise these notes" in str(messages[0].text):
            raise ConnectionError("down")
        return "well done"

    model = ScriptedModel({"*": answer})
    agent = Agent("head", model=model, memory=Memory(budget=900, recent=1))
    with Session(agent, ":memory:") as session:
        for n in range(20):
            assert world.send(session, f"task {n}").text == "well done"
    assert "is an extract instead" in caplog.text
    assert "task 0" in instructions(model.calls[-1].messages)


def test_a_memory_of_a_wrong_kind_is_refused() -> None:
    with raises_code("invalid_field", match="memory"):
        Agent("head", memory=4000)  # type: ignore[arg-type]
