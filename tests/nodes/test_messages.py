"""What a run has cost is what models have cost: nobody else's words count."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda

from echelons import Agent, Session, subordinate
from echelons.delegation.request import DelegationResponse, Usage
from echelons.testing import Call, Reply, ScriptedModel, delegate


def shout(task: str) -> str:
    """Say it louder."""
    return task.upper()


def reply(task: str) -> AIMessage:
    tokens: Any = {"input_tokens": 20, "output_tokens": 4, "total_tokens": 24}
    return AIMessage("yes", usage_metadata=tokens)


def spent(head: Agent) -> tuple[Usage, Usage]:
    """Return what a run has cost, and what its only delegation says of itself."""
    with Session(head, ":memory:") as session:
        whole = session.send("go").result().usage
        messages = session.thread_store.get(session.thread_id).messages
    answer = next(each for each in messages if isinstance(each, ToolMessage))
    return whole, DelegationResponse.load(answer.artifact).usage


@pytest.mark.parametrize(
    ("subordinate", "name", "cost"),
    [
        (shout, "shout", Usage()),
        (RunnableLambda(reply, name="reply"), "reply", Usage(input_tokens=20, output_tokens=4)),
    ],
)
def test_what_is_no_agent_costs_what_its_own_model_says(
    subordinate: Any, name: str, cost: Usage
) -> None:
    model = ScriptedModel({"head": [delegate(name, "hello"), "done"]})

    whole, answer = spent(Agent("head", model=model, subordinates=[subordinate]))

    assert (answer.input_tokens, answer.output_tokens) == (cost.input_tokens, cost.output_tokens)
    assert answer.model_calls == (1 if cost.input_tokens else 0)
    assert whole.model_calls == len(model.calls) + answer.model_calls


def test_agent_that_only_passes_a_request_on_has_called_no_model() -> None:
    find = Call("call_subordinate", {"message": "Repair the bicycle"})
    model = ScriptedModel({"head": [find, "done"], "d": [Reply("as new", usage=(20, 4))]})
    b = Agent("b", subordinates=[Agent("d", capabilities={"repair bicycle": 0.9})])
    below = [Agent("a", subordinates=[b]), Agent("other", capabilities={"singing": 0.9})]

    whole, answer = spent(Agent("head", model=model, subordinates=below))

    assert answer == Usage(input_tokens=20, output_tokens=4, model_calls=1)
    assert whole.model_calls == len(model.calls) == 3


class ReportsNoUsage(BaseChatModel):
    """A model that answers the same each time, and reports no tokens."""

    @property
    def _llm_type(self) -> str:
        return "no-usage"

    def bind_tools(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("hello"))])


async def test_a_reply_from_the_cache_of_langchain_may_have_no_tokens() -> None:
    agent = Agent("head", model=ReportsNoUsage(cache=InMemoryCache()))
    results = []
    for _ in range(2):
        with Session(agent, ":memory:") as session:
            results.append(session.send("go").result())
        async with Session(agent, ":memory:") as session:
            results.append(await (await session.asend("go")).result())

    assert {each.text for each in results} == {"hello"}
    assert [each.usage for each in results] == [Usage(model_calls=1, unknown_calls=1)] * 4


def test_nor_has_one_of_a_runnable() -> None:
    tokens: Any = {"total_cost": 0}
    below: Any = RunnableLambda(
        lambda task: AIMessage("yes").model_copy(update={"usage_metadata": tokens})
    )
    model = ScriptedModel({"head": [delegate("below", "x"), "done"]})
    head = Agent("head", model=model, subordinates=[subordinate(below, name="below")])

    assert spent(head)[1] == Usage(model_calls=1, unknown_calls=1)
