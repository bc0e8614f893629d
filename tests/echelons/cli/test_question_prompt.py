"""Questions that a command asks on its terminal, and turns that go on with the answers."""

from __future__ import annotations

import os
import pty
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from echelons.checkpoints.threads.pending_work import Question
from echelons.cli.question_prompt import ask_question, ask_questions, read_line
from echelons.runtime.session_requests import MISSING
from echelons.tree.agent_path import AgentPath

ASKERS = '''
from echelons import Permissions

details = {"question": "Which?", "choices": ["fish", "rice"], "urgent": True}
details |= {"deadline_seconds": 86400, "default": "rice"}
def serve(messages):
    """Ask the user, and repeat the answer."""
    return Call("ask_user", details) if len(messages) == 1 else f"served {messages[-1].text}"


def repeat(messages):
    """Delegate, and repeat the answer."""
    return delegate("clerk", "eat") if len(messages) == 1 else messages[-1].text


eater = Agent(
    "head",
    guidance="", model=ScriptedModel({"head": repeat, "clerk": serve}),
    subordinates=[Agent("clerk", permissions=Permissions(contact_user=True))],
)


def pay(payee: str, amount: int) -> str:
    """Transfer an amount."""
    return f"paid {amount} to {payee}"


def settle(messages):
    """Pay, and repeat what became of it."""
    if len(messages) == 1:
        return [Call("pay", {"payee": name, "amount": 700}) for name in ("Ann", "Bob")]
    return " and ".join(each.text for each in messages if each.type == "tool")


payer = Agent(
    "head",
    guidance="", model=ScriptedModel({"head": settle}),
    tools=[pay],
    permissions=Permissions(approvals={"pay": "ask"}),
)
gardener = Agent(
    "head", model=ScriptedModel([Call("ask_later", {"question": "Which colour?"}), "Planted."])
)
'''


@pytest.fixture
def askers(folder: Path) -> None:
    """Adds teams that ask to the module `trips`."""
    with (folder / "trips.py").open("a") as module:
        module.write(ASKERS)


@pytest.mark.usefixtures("askers")
def test_a_run_asks_on_its_terminal_and_goes_on_with_the_answer(live: Callable[..., Any]) -> None:
    running = live("run", "trips:eater", "Eat")
    running.wait_for(r"head/clerk asks urgently:\s+Which\?\s+choices: fish, rice")
    running.wait_for(r'It waits until .*, then "rice" is taken\.')
    running.wait_for("> ")
    running.type("soup\n")
    running.wait_for(r"'soup' is not one of")
    running.wait_for("> ")
    running.type("fish\n")
    code, shown = running.wait()

    assert code == 0
    assert "served fish" in shown


@pytest.mark.usefixtures("askers")
def test_a_run_asks_for_approvals_on_its_terminal(live: Callable[..., Any]) -> None:
    running = live("run", "trips:payer", "Pay")
    running.wait_for(r"approve, edit, reject, always> ")
    running.type("edit\n")
    running.wait_for(r"its arguments as JSON> ")
    running.type('{"payee": "Ann", "amount": 7}\n')
    running.wait_for(r"approve, edit, reject, always> ")
    running.type("reject\n")
    running.wait_for(r"the reason, if there is one> ")
    running.type("too much\n")
    code, shown = running.wait()

    assert code == 0
    assert "paid 7 to Ann" in shown
    assert "too much" in shown


@pytest.mark.usefixtures("askers")
def test_a_question_for_later_is_asked_after_the_answer_of_the_turn(
    live: Callable[..., Any], echelons: Callable[..., Result]
) -> None:
    running = live("run", "trips:gardener", "Plant")
    running.wait_for(r"Planted\.")
    running.wait_for(r"head asks:\s+Which colour\?\s+> ")
    running.type("red\n")
    code, shown = running.wait()

    assert code == 0
    assert "told before its next model call" in shown
    assert not echelons("inbox").stdout


def test_a_question_that_is_left_open_is_shown_with_the_command_that_answers_it(
    live: Callable[..., Any],
) -> None:
    running = live("run", "trips:asking", "A table")
    running.wait_for(r"Book it\?\s+> ")
    running.type("\n")
    code, shown = running.wait()

    assert code == 4
    assert "Answer it with: echelons answer" in shown


def test_ctrl_c_on_the_terminal_leaves_the_question_in_the_inbox(
    live: Callable[..., Any], echelons: Callable[..., Result]
) -> None:
    running = live("run", "trips:asking", "A table", controlled=True)
    running.wait_for(r"Book it\?\s+> ")
    running.type("\x03")
    code, shown = running.wait()

    assert code == 4
    assert "Answer it with: echelons answer" in shown
    assert "Book it?" in echelons("inbox").stdout


def typed(*lines: str) -> Callable[[str], str]:
    left: Iterator[str] = iter(lines)

    def read(prompt: str) -> str:
        if (line := next(left, None)) is None:
            raise EOFError
        return line

    return read


def question(value: Any, schema: dict[str, Any] | None = None) -> Question:
    return Question("q", value, AgentPath("head"), "t", "2026-01-01T00:00:00+00:00", schema)


@pytest.mark.parametrize(
    ("schema", "lines", "answer"),
    [
        (None, ("yes",), "yes"),
        ({"type": "string"}, ("5",), "5"),
        ({"type": "integer"}, ("five", '"5"', "5"), 5),
        ({"enum": [1, "many"]}, ("1",), 1),
        ({"enum": [1, "many"]}, ("2", "many"), "many"),
        ({"type": "array"}, ("[" * 20_000, "[2, 3]"), [2, 3]),
        ({"type": "integer"}, ("five", ""), MISSING),
    ],
)
def test_an_answer_is_asked_for_until_it_is_accepted(
    schema: dict[str, Any] | None, lines: tuple[str, ...], answer: Any
) -> None:
    assert ask_question(question("How many?", schema), typed(*lines)) == answer


def test_ctrl_c_at_a_question_leaves_it_and_the_next_ones_open() -> None:
    def interrupt(prompt: str) -> str:
        raise KeyboardInterrupt

    assert ask_questions([question("First?"), question("Second?")], interrupt) == {}


def test_what_is_answered_before_the_end_of_the_input_counts() -> None:
    asked = [question("First?"), question("Second?")]

    assert ask_questions(asked, typed("one")) == {"q": "one"}


def test_a_signal_that_interrupts_no_read_ends_the_wait_for_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One to another thread is like one right before the read: only its handler ends it."""
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "wb"), os.fdopen(theirs, encoding="utf-8") as terminal:
        shown = threading.Event()
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(sys.stderr, "flush", shown.set)

        def press() -> None:
            shown.wait()
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            read_line("Book it?")
        thread.join()
