"""A tree whose second agent has LangChain's middleware, run step by step in processes of its own.

``main(database, log, middleware, mode, step)`` takes one step, and returns what it led to. The tool
writes each of its runs into the log, and may kill its process there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolRetryMiddleware
from langchain_core.tools import tool

from echelons import Agent, Result, Session
from echelons.middleware import PlanMiddleware, VerificationMiddleware
from echelons.testing import Call, ScriptedModel, delegate
from tests.told_lines import get_last


def main(database: str, log: str, middleware: str, mode: str, step: str) -> dict[str, Any]:
    """Take a step, and return the questions and the text that it ended with."""
    action, given = json.loads(step)
    agent, given = build_tree(Path(log), middleware), () if given is None else (given,)
    if mode == "sync":
        with Session(agent, database) as session:
            result: Result = getattr(session, action)(*given).result()
    else:
        result = asyncio.run(take(agent, database, action, given))
    return {"questions": {each.id: each.value for each in result.questions}, "text": result.text}


async def take(agent: Agent, database: str, action: str, given: Any) -> Result:
    async with Session(agent, database) as session:
        run = await getattr(session, f"a{action}")(*given)
        result: Result = await run.result()
        return result


def count_runs(log: Path) -> int:
    return len(log.read_text(encoding="utf-8").splitlines())


def build_tree(log: Path, middleware: str) -> Agent:
    """Return the tree; its tool fails at the first run, and may die at the second."""

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        with log.open("a", encoding="utf-8") as lines:
            lines.write(f"paid {amount}\n")
        runs = count_runs(log)
        if middleware.startswith("retry") and runs == 1:
            raise ConnectionError("no connection")
        if middleware.endswith("killed in the tool") and runs == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {amount}"

    def decide(error: Exception) -> bool:
        if (
            middleware == "retry, killed between"
            and not (dead := log.with_suffix(".dead")).exists()
        ):
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return isinstance(error, ConnectionError)

    allowed: Any = {"pay": {"allowed_decisions": ["approve", "edit", "reject"]}}
    built: Any = {
        "review": lambda: HumanInTheLoopMiddleware(allowed),
        "review of each": lambda: HumanInTheLoopMiddleware(allowed, interrupt_mode="per_call"),
    }.get(middleware, lambda: ToolRetryMiddleware(retry_on=decide, initial_delay=0, jitter=False))
    steps: Any = [Call("pay", {"amount": 3}), "done"]
    built_whole = {
        "planned, killed in the superior": build_planned_tree,
        "reviewed, killed in the reviewer": build_reviewed_tree,
    }
    if middleware in built_whole:
        return built_whole[middleware](log, pay)
    if middleware.startswith("verify"):
        # Around the request to the agent with the tool, whose first answer is rejected.
        check = VerificationMiddleware(lambda _, said: "" if count_runs(log) > 1 else "too few")
        work: dict[str, Any] = {
            "boss": [delegate("head", "go"), "end"],
            "head": [delegate("mid", "go"), "done"],
        }
        head = Agent("head", middleware=[check], subordinates=[Agent("mid", tools=[pay])])
        return Agent("boss", model=ScriptedModel({**work, "mid": steps}), subordinates=[head])
    model = ScriptedModel(
        {"head": [delegate("mid", "go"), "end"], "mid": [Call("pay", {"amount": 3}), "done"]}
    )
    mid = Agent("mid", tools=[pay], middleware=[built()], subordinates=[Agent("leaf")])
    return Agent("head", model=model, subordinates=[mid])


def build_planned_tree(log: Path, pay: Any) -> Agent:
    """Return a tree whose third agent reports its plan to the second, which is killed once."""
    answers = ["Pay three.", "accept"]

    def lead(messages: Any) -> Any:
        last = str(messages[-1].text)
        if asked := re.search(r'answers="(\w+)"', last):
            if not (dead := log.with_suffix(".dead")).exists():
                dead.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            answer = answers[last.count("Pay three")]
            return Call("call_subordinate", {"message": answer, "answers": asked[1]})
        return delegate("mid", "go") if get_last(messages).type == "human" else "done"

    def work(messages: Any) -> Any:
        if "accept" in str(get_last(messages).text):
            return Call("pay", {"amount": 3})
        if "paid" in str(get_last(messages).text):
            return "done"
        with log.open("a", encoding="utf-8") as lines:
            lines.write("plans\n")
        return "Pay three" if "Pay three" in str(get_last(messages).text) else "Pay a lot"

    script: dict[str, Any] = {
        "boss": [delegate("head", "go"), "end"],
        "head": lead,
        "mid": work,
    }
    mid = Agent("mid", tools=[pay], middleware=[PlanMiddleware(approve="superior")])
    head = Agent("head", subordinates=[mid])
    return Agent("boss", model=ScriptedModel(script), subordinates=[head])


def build_reviewed_tree(log: Path, pay: Any) -> Agent:
    """Return a tree whose third agent is reviewed by another, which is killed once."""

    def review(messages: Any) -> str:
        if not (dead := log.with_suffix(".dead")).exists():
            dead.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "OK" if count_runs(log) > 1 else "too few"

    by_reviewer = [VerificationMiddleware("reviewer")]
    members = [Agent("mid", tools=[pay]), Agent("reviewer")]
    reviewed: dict[str, Any] = {
        "boss": [delegate("head", "go"), "end"],
        "head": [delegate("mid", "go"), "done"],
        "reviewer": review,
        "mid": [Call("pay", {"amount": 3}), "done"],
    }
    head = Agent("head", middleware=by_reviewer, subordinates=members)
    return Agent("boss", model=ScriptedModel(reviewed), subordinates=[head])
