"""docs/prompts.md shows byte for byte what a model reads, and no place costs more than it may.

`ECHELONS_UPDATE_PROMPTS=1 pytest tests/docs/test_prompts.py` writes the page anew after a change.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import quicktok  # type: ignore[import-untyped]  # it has no types
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import BaseModel, Field

from echelons import Agent, Contract, DelegationPolicy, Permissions
from echelons.testing import Call

PAGE = Path(__file__).parents[2] / "docs" / "prompts.md"
TOKENS = quicktok.get_encoding("o200k_base")
START, END = "<!-- written by tests/docs/test_prompts.py -->", "<!-- end -->"
MARK = re.compile(r"~\w+")


class Recorder(BaseChatModel):
    """Answers at once, or gives the first subordinate a task; keeps the first request of each."""

    seen: dict[str, tuple[str, list[dict[str, Any]]]] = Field(default_factory=dict)
    functions: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "recorder"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return Recorder(seen=self.seen).model_copy(
            update={"seen": self.seen, "functions": [each["function"] for each in tools]}
        )

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        system = MARK.sub("~0a1b2c3d4e5f", str(messages[0].text))
        [name] = re.findall(r"You are (\w+)", system)
        first = name not in self.seen
        self.seen.setdefault(name, (system, self.functions))
        below = next((f for f in self.functions if f["name"] == "call_subordinate"), None)
        reply = AIMessage("Done.")
        if first and below:
            target = below["parameters"]["properties"]["subordinate"]["enum"][0]
            call = Call("call_subordinate", {"message": "Go on", "subordinate": target})
            reply = AIMessage("", tool_calls=[{"name": call.name, "args": call.args, "id": "c1"}])
        return ChatResult(generations=[ChatGeneration(message=reply)])


class Answer(BaseModel):
    """An answer."""

    text: str


def read(agent: Agent, name: str, **more: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the system text and the functions that the model of an agent of a tree reads."""
    model = Recorder()
    root = _with_model(agent, model, more)
    root.compile().invoke({"messages": [("user", "Hello")]})
    return model.seen[name]


def _with_model(agent: Agent, model: Any, more: dict[str, Any]) -> Agent:
    fields = {"model": model, "subordinates": agent.subordinates, **more}
    return Agent(agent.name, agent.description, permissions=agent.permissions, **fields)


def count(text: str) -> int:
    return len(TOKENS.encode(text))


def dump(function: dict[str, Any]) -> str:
    return json.dumps(function, separators=(",", ":"))


def total(shown: tuple[str, list[dict[str, Any]]]) -> int:
    return count(shown[0]) + sum(count(dump(each)) for each in shown[1])


LOOKUP = Agent("lookup", "Looks up orders by number")
BILLS = Agent("bills", "Answers questions about bills")
ORDERS = Agent("orders", "Answers questions about orders", subordinates=[LOOKUP])
DESK = Agent("desk", "Answers customers", subordinates=[ORDERS])
SMALL = Agent("desk", "Answers customers", subordinates=[LOOKUP])
WIDE = Agent("desk", "Answers customers", subordinates=[LOOKUP, BILLS])
ALONE = Agent("desk", "Answers customers")
ASKING = Agent("desk", "Answers customers", permissions=Permissions(contact_user=True))

PLACES: list[tuple[str, Agent, str, int]] = [
    ("The root", DESK, "desk", 500),
    ("In the middle", DESK, "orders", 560),
    ("A leaf", SMALL, "lookup", 180),
    ("A leaf with `report`", DESK, "lookup", 250),
    ("A leaf with `report` and `send_message`", WIDE, "lookup", 300),
    ("A single agent", ALONE, "desk", 10),
    ("A single agent that may ask", ASKING, "desk", 130),
]


@pytest.mark.parametrize(("title", "agent", "name", "most"), PLACES)
def test_place_costs_no_more_tokens_than_it_may(
    title: str, agent: Agent, name: str, most: int
) -> None:
    assert total(read(agent, name)) <= most


def test_further_subordinate_costs_at_most_forty_tokens() -> None:
    assert total(read(WIDE, "desk")) - total(read(SMALL, "desk")) <= 40


def test_single_agent_reads_its_name_and_no_more() -> None:
    assert read(ALONE, "desk") == ("You are desk.", [])


def test_descriptions_of_tools_stay_within_what_providers_take() -> None:
    many = [Agent(f"expert{n}", "x" * 300) for n in range(30)]
    policy = DelegationPolicy(joins=True, progress=True)
    contract = Contract(output=Answer)

    head = Agent("desk", subordinates=many, contract=contract)
    _, functions = read(head, "desk", delegation=policy)

    assert all(len(each["description"]) <= 1_024 for each in functions)
    assert "delegate_many" in {each["name"] for each in functions}


def build_page() -> str:
    """Return the generated part of the page."""
    rows, sections = [], []
    for title, agent, name, most in PLACES:
        text, functions = read(agent, name)
        tools = [(each["name"], dump(each)) for each in functions]
        listed = ", ".join(f"`{tool}` {count(line)}" for tool, line in tools) or "none"
        rows.append(f"| {title} | {count(text)} | {listed} | {total((text, functions))} | {most} |")
        lines = "\n".join(line for _, line in tools)
        shown = f"```text\n{text}\n```\n" + (f"\n```text\n{lines}\n```\n" if lines else "")
        sections.append(f"## {title}\n\n{shown}")
    head = "| place | system text | tools | together | at most |\n| --- | --- | --- | --- | --- |"
    return "\n".join([head, *rows, "", *sections])


def test_page_shows_what_a_model_reads() -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    built = f"{before}{START}\n{build_page()}\n{END}{after}"
    if os.environ.get("ECHELONS_UPDATE_PROMPTS"):
        PAGE.write_text(built, encoding="utf-8")

    assert page == built or os.environ.get("ECHELONS_UPDATE_PROMPTS")
