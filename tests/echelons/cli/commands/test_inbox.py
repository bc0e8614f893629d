"""``echelons inbox`` and ``echelons answer``: who asks what, and what is said to it."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import Result

from echelons import Session, SqliteCheckpointer
from echelons.cli.team_loader import TeamSpec, load_team
from echelons.identity.lineage import derive_root_thread_id
from tests.fork_server import Ended, ForkedProcess

Call = Callable[..., Result]
Process = Callable[..., Ended]
Start = Callable[..., ForkedProcess]


def ids(shown: str) -> list[str]:
    return re.findall(r"echelons answer (\w+) VALUE", shown)


def test_the_inbox_lists_the_questions_of_all_threads(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    echelons("run", "trips:two", "Both", "--thread", "oslo")
    echelons("run", "trips:plain", "Hello", "--thread", "done")

    shown = echelons("inbox").stdout

    assert shown.count(" asks:") == 3
    assert "thread rome\nhead/clerk asks:\n  Book it?\n" in shown
    assert "thread oslo\nhead/one asks:\n  First?\n" in shown
    assert "head/other asks:\n  Second?\n" in shown
    assert "done" not in shown


def test_the_inbox_of_one_thread_has_only_its_questions(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    echelons("run", "trips:two", "Both", "--thread", "oslo")

    assert len(ids(echelons("inbox", "--thread", "rome").stdout)) == 1


CHOOSING = '''
def hotel() -> str:
    """Ask for a hotel."""
    asked = {"question": "Which hotel?\\nAll are free.", "people": 2, "view": None}
    return interrupt({**asked, "choices": ["Hotel Savoy", "-5"]})


def nights() -> str:
    """Ask for nights."""
    return f"for {interrupt('How many?', response_schema={'enum': [1, 'many']})!r}"


choosing = Agent("head", model=ScriptedModel([Call("hotel"), Call("nights"), "Thanks."]))
choosing = replace(choosing, tools=[hotel, nights])
'''


def test_a_question_is_shown_whole_with_its_choices_everywhere(
    echelons: Call, folder: Path
) -> None:
    with (folder / "trips.py").open("a") as module:
        module.write(CHOOSING)
    asked = echelons("run", "trips:choosing", "A room", "--thread", "rome")
    (question, *_) = re.findall(r"echelons answer (\w+)", asked.stdout)
    shown = (
        "head asks:\n  Which hotel?\n  All are free.\n  people: 2\n  choices: Hotel Savoy, -5\n"
        "Answer it with one of:\n"
        f"  echelons answer {question} 'Hotel Savoy' --db trips.sqlite\n"
        f"  echelons answer {question} --json-value '\"-5\"' --db trips.sqlite\n"
    )

    assert asked.stdout == shown
    assert "asks you: Which hotel? All are free. people: 2 choices: Hotel Savoy, -5" in asked.stderr
    assert echelons("inbox").stdout == f"thread rome\n{shown}\n"
    assert echelons("show", "rome").stdout.endswith(f"calls hotel()\n\n{shown}")
    again = echelons("answer", question, "--json-value", '"-5"')
    assert "head asks:\n  How many?\n  choices: 1, many\nAnswer it with one of:\n" in again.stdout
    assert " --json-value 1 --db trips.sqlite\n" in again.stdout
    assert " many --db trips.sqlite\n" in again.stdout
    assert "asks you: How many? choices: 1, many" in again.stderr
    done = echelons("answer", "1", "--json-value")
    assert (done.exit_code, done.stdout) == (0, "Thanks.\n")
    assert "asks:" not in echelons("show", "rome").stdout


@pytest.mark.parametrize(
    ("words", "placeholder"),
    [
        (("run", "trips:asking", "TASK"), "TASK"),
        (("answer", "VALUE"), "VALUE"),
        (("answer", "abcd", "VALUE"), "VALUE"),
        (("answer", "happened", "--result", "TEXT"), "TEXT"),
        (("answer", "respond", "--message", "TEXT"), "TEXT"),
    ],
)
def test_a_printed_command_that_is_copied_without_its_words_is_refused(
    echelons: Call, words: tuple[str, ...], placeholder: str
) -> None:
    echelons("run", "trips:asking", "A table")
    done = echelons(*words)

    assert done.exit_code == 2
    assert f"{placeholder} stands for your own words: put them in its place" in done.stderr
    assert echelons("inbox").stdout, "nothing was answered"


def test_a_program_gets_a_question_a_line(echelons: Call) -> None:
    echelons("run", "trips:two", "Both", "--thread", "oslo")

    asked = [json.loads(line) for line in echelons("inbox", "--json").stdout.splitlines()]

    assert [each["value"]["question"] for each in asked] == ["First?", "Second?"]
    assert {each["thread"] for each in asked} == {"oslo"}


def test_an_empty_inbox_says_so(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello")
    done = echelons("inbox")

    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing waits for an answer" in done.stderr


def test_the_only_question_needs_no_id(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table")
    done = echelons("answer", "yes please")

    assert (done.exit_code, done.stdout) == (0, "Booked.\n")
    assert "The human said 'yes please'." in done.stderr
    assert "head/clerk  goes on: book a table" in done.stderr
    assert "head  goes on: A table" in done.stderr


def test_an_answer_finds_its_thread_by_the_beginning_of_the_questions_id(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    echelons("run", "trips:asking", "A table", "--thread", "oslo")
    (first,) = ids(echelons("inbox", "--thread", "rome").stdout)

    done = echelons("answer", first[:10], "yes")

    assert "thread rome" in done.stderr
    assert len(ids(echelons("inbox").stdout)) == 1


def test_of_two_questions_the_one_left_is_asked_again(echelons: Call) -> None:
    first, second = ids(echelons("run", "trips:two", "Both").stdout)
    done = echelons("answer", first, "one")

    assert done.exit_code == 4
    assert ids(done.stdout) == [second]
    assert echelons("answer", second, "two", "--quiet").stdout == "Both said.\n"


def test_an_answer_may_be_json(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table")
    done = echelons("answer", '{"seats": [2, 3]}', "--json-value")

    assert "The human said {'seats': [2, 3]}." in done.stderr


@pytest.mark.parametrize(("given", "said"), [("null", "None"), ("false", "False"), ("0", "0")])
def test_an_answer_may_be_a_value_that_counts_as_nothing(
    echelons: Call, given: str, said: str
) -> None:
    echelons("run", "trips:asking", "A table")
    done = echelons("answer", given, "--json-value")

    assert done.exit_code == 0
    assert f"The human said {said}." in done.stderr


def test_an_answer_of_json_that_is_too_deep_is_refused(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table")
    deep = echelons("answer", "[" * 20_000, "--json-value")
    right = echelons("answer", "1", "--json-value")

    assert (deep.exit_code, right.exit_code) == (2, 0)
    assert "the answer is no JSON: maximum recursion depth exceeded" in deep.stderr


def test_an_answer_is_read_from_the_standard_input(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table")
    done = echelons("answer", "-", given="yes,\nat eight\n")

    assert r"The human said 'yes,\nat eight'." in done.stderr


def test_another_process_answers_without_naming_the_team(process: Process, echelons: Call) -> None:
    asked = echelons("run", "trips:made", "A table", "--thread", "rome")
    (question,) = ids(asked.stdout)

    done = process("answer", question, "yes", "--quiet")

    assert (done.returncode, done.stdout, done.stderr) == (0, "Booked.\n", "")
    assert echelons("answer", question, "yes").exit_code == 3


def test_a_shipped_team_is_answered_by_its_name_alone(echelons: Call) -> None:
    task = "Reserve a table for two in Rome at Checchino on Friday"
    asked = echelons("run", "travel", task)
    assert "Is it confirmed?" in asked.stdout

    assert "Confirmed by a human" in echelons("answer", "yes").stdout


def test_the_documents_are_noted_with_the_team(echelons: Call, folder: Path) -> None:
    (folder / "notes").mkdir()
    (folder / "notes" / "tides.md").write_text("# Tides\n\nThe moon makes the tides.\n")
    done = echelons("run", "research", "What makes tides?", "--docs", "notes", "--thread", "sea")
    assert "notes: 1 read, 0 skipped" in done.stderr

    drawn = echelons("draw", "--thread", "sea").stdout

    assert "tides_md" in drawn


def test_no_answer_is_refused_as_a_wrong_command_line(echelons: Call) -> None:
    (question,) = ids(echelons("run", "trips:asking", "A table").stdout)

    assert echelons("answer").exit_code == 2
    assert echelons("answer", question).exit_code == 2
    assert echelons("answer", question, "{", "--json-value").exit_code == 2
    assert ids(echelons("inbox").stdout) == [question]


def test_an_answer_to_no_question_is_refused(echelons: Call) -> None:
    echelons("run", "trips:plain", "Hello")
    done = echelons("answer", "yes")

    assert done.exit_code == 3
    assert "no thread in 'trips.sqlite' asks anything" in done.stderr


@pytest.mark.parametrize("wrong", ["ffffffff", "no", ""])
def test_a_wrong_question_is_refused_with_the_right_ones(echelons: Call, wrong: str) -> None:
    (question,) = ids(echelons("run", "trips:asking", "A table").stdout)
    done = echelons("answer", wrong, "yes")

    assert done.exit_code == 3
    assert f"no question {wrong!r} is pending" in done.stderr
    assert question in done.stderr


def test_an_answer_that_may_go_to_several_questions_is_refused(echelons: Call) -> None:
    first, second = ids(echelons("run", "trips:two", "Both").stdout)
    done = echelons("answer", "yes")

    assert done.exit_code == 3
    assert f"2 questions are pending; name one of {first}, {second}" in done.stderr


def test_a_question_is_answered_once(echelons: Call) -> None:
    (question,) = ids(echelons("run", "trips:asking", "A table").stdout)
    echelons("answer", question, "yes")
    done = echelons("answer", question, "no")

    assert done.exit_code == 3
    assert "it was answered already, or withdrawn" in done.stderr


def test_a_function_that_only_a_database_names_is_not_called(echelons: Call) -> None:
    echelons("run", "trips:unannotated", "A table")
    done = echelons("answer", "yes")

    assert done.exit_code == 3
    assert "--team trips:unannotated" in done.stderr
    assert echelons("answer", "yes", "--team", "trips:unannotated", "--quiet").exit_code == 0


def test_a_thread_that_notes_no_team_wants_one_named(echelons: Call) -> None:
    with Session(load_team(TeamSpec("trips:asking")), "trips.sqlite", thread="mine") as session:
        assert session.send("A table").result().questions
    done = echelons("answer", "yes")

    assert done.exit_code == 3
    assert "thread 'mine' does not say which team it belongs to" in done.stderr
    assert echelons("answer", "yes", "--team", "trips:asking", "--quiet").stdout == "Booked.\n"


def test_a_tree_without_the_asking_agent_is_refused_and_nothing_is_lost(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table")
    done = echelons("answer", "yes", "--team", "trips:plain")

    assert done.exit_code == 3
    assert "head/clerk" in done.stderr
    assert echelons("answer", "yes", "--quiet").stdout == "Booked.\n"


def test_an_ordinary_question_takes_no_result(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    refused = echelons("answer", "yes", "--result", "Booked")

    assert refused.exit_code == 2
    assert "--result is for a call that was cut short" in refused.stderr
    assert len(echelons("inbox", "--json").stdout.splitlines()) == 1


CLERKS = '''
"""A graph whose tools wait for a decision, two levels down."""

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware

from echelons import Agent, Permissions
from echelons.testing import Call, ScriptedModel, delegate


def mail(to: str) -> str:
    """Send a mail."""
    with open("mails.txt", "a") as sent:
        sent.write(f"{to}\\n")
    return f"sent to {to}"


def drop(path: str) -> str:
    """Delete a file."""
    return f"dropped {path}"


def made(*calls):
    model = ScriptedModel({"*": [list(calls), DONE]})
    rules = {"mail": True, "drop": {"allowed_decisions": ["approve", "reject"]}}
    middleware = [HumanInTheLoopMiddleware(rules)]
    graph = create_agent(model, [mail, drop], name="clerk", middleware=middleware)
    scripts = {
        "head": [delegate("mid", "go"), "over"],
        "mid": [delegate("clerk", "go"), "passed on"],
    }
    mid = Agent("mid", subordinates=[graph])
    return Agent("head", model=ScriptedModel(scripts), subordinates=[mid])


DONE = "the clerk is done"
one = made(Call("mail", {"to": "bob"}))
both = made(Call("mail", {"to": "bob"}), Call("drop", {"path": "/x"}))
own = Agent(
    "head",
    model=ScriptedModel({"*": [Call("mail", {"to": "bob"}), Call("mail", {"to": "bob"}), DONE]}),
    tools=[mail],
    permissions=Permissions(approvals={"mail": "ask"}),
)
'''


@pytest.fixture
def clerks(folder: Path) -> Iterator[Path]:
    """The module ``clerks``, and the file of the mails that it has sent."""
    (folder / "clerks.py").write_text(CLERKS, encoding="utf-8")
    yield folder / "mails.txt"
    sys.modules.pop("clerks", None)


def test_a_tool_call_that_waits_is_shown_with_the_commands_that_decide(
    echelons: Call, clerks: Path
) -> None:
    shown = echelons("run", "clerks:one", "A mail", "--thread", "rome").stdout

    question = json.loads(echelons("inbox", "--json").stdout)["id"]
    edit = '{"type": "edit", "edited_action": {"name": "mail", "args": {"to": "bob"}}}'
    lines = [
        "head/mid/clerk asks:",
        "  Tool execution requires approval",
        "  mail(to='bob')",
        "Answer it with one of:",
        f"  echelons answer {question} approve --db trips.sqlite",
        f"  echelons answer {question} --json-value '{edit}' --db trips.sqlite",
        f"  echelons answer {question} reject --db trips.sqlite",
        f"  echelons answer {question} respond --message TEXT --db trips.sqlite",
    ]
    assert shown.splitlines() == lines
    assert echelons("inbox").stdout.splitlines()[1:-1] == lines


def test_a_call_that_permissions_hold_can_be_approved_for_the_thread(
    echelons: Call, clerks: Path
) -> None:
    shown = echelons("run", "clerks:own", "A mail", "--thread", "rome").stdout

    ways = re.findall(r"echelons answer \w+ (.*) --db", shown)
    standing = '{"type": "approve", "scope": "thread"}'
    edit = '{"type": "edit", "edited_action": {"name": "mail", "args": {"to": "bob"}}}'
    assert "head asks:\n  May this call run?\n  mail(to='bob')\n" in shown
    assert ways == [
        "approve",
        f"--json-value '{edit}'",
        "reject",
        f"--json-value '{standing}'",
    ]
    assert echelons("answer", standing, "--json-value", "--quiet").exit_code == 0
    assert clerks.read_text() == "bob\nbob\n"


def test_several_calls_are_shown_with_a_decision_for_all_and_one_for_each(
    echelons: Call, clerks: Path
) -> None:
    shown = echelons("run", "clerks:both", "A mail", "--thread", "rome").stdout

    assert "  mail(to='bob')\n  drop(path='/x')\n" in shown
    ways = re.findall(r"echelons answer \w+ (.*) --db", shown)
    each = '[{"type": "approve"}, {"type": "approve"}]'
    assert ways == ["approve", "reject", f"--json-value '{each}'"]
    assert echelons("answer", each, "--json-value", "--quiet").stdout == "over\n"


@pytest.mark.parametrize(
    ("words", "mails"),
    [
        (("approve",), "bob\n"),
        (("reject",), ""),
        (("reject", "--message", "too late"), ""),
        (("respond", "--message", "sent"), ""),
        (
            (
                '{"type": "edit", "edited_action": {"name": "mail", "args": {"to": "eve"}}}',
                "--json-value",
            ),
            "eve\n",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_a_decision_is_given_on_the_command_line(
    echelons: Call, clerks: Path, words: tuple[str, ...], mails: str
) -> None:
    echelons("run", "clerks:one", "A mail", "--thread", "rome")

    done = echelons("answer", *words, "--quiet")

    assert (done.exit_code, done.stdout) == (0, "over\n")
    assert (clerks.read_text() if clerks.exists() else "") == mails


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("yes",), "'yes' is no decision for mail; give approve, edit, reject or respond"),
        (("edit",), "'edit' is for one call; give a list of 2 (mail, drop)"),
        (("approve", "--message", "fine"), "'approve' has no such field"),
        (('["approve"]', "--json-value"), "give a decision for each call (mail, drop): 2, not 1"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_what_is_no_decision_is_refused_on_the_command_line(
    echelons: Call, clerks: Path, words: tuple[str, ...], said: str
) -> None:
    echelons("run", "clerks:both", "A mail", "--thread", "rome")

    refused = echelons("answer", *words)

    assert refused.exit_code == 3
    assert said in " ".join(refused.stderr.split())
    assert len(echelons("inbox", "--json").stdout.splitlines()) == 1


def test_a_program_gets_the_calls_and_what_is_allowed(echelons: Call, clerks: Path) -> None:
    echelons("run", "clerks:both", "A mail", "--thread", "rome")

    asked = json.loads(echelons("inbox", "--json").stdout)

    assert [each["tool"] for each in asked["reviewed_calls"]] == ["mail", "drop"]
    assert asked["reviewed_calls"][1]["arguments"] == {"path": "/x"}
    assert asked["reviewed_calls"][1]["allowed"] == ["approve", "reject"]


def test_a_log_shows_the_call_that_waits(echelons: Call, clerks: Path) -> None:
    shown = echelons("run", "clerks:one", "A mail", "--thread", "rome").stderr

    assert "head/mid/clerk  asks you: run mail(to='bob')?" in shown


def test_an_ordinary_question_takes_no_message(echelons: Call) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")

    refused = echelons("answer", "reject", "--message", "no")

    assert refused.exit_code == 2
    assert "--message is for a decision on tool calls" in refused.stderr


HUMANS = """
from echelons import Human

both = [delegate("anna", "Sign it"), delegate("bert", "Pay it")]
humans = Agent(
    "head",
    model=ScriptedModel([both, "Done."]),
    subordinates=[Human("anna", "Signs"), Human("bert", "Pays")],
)
"""


def test_the_inbox_lists_the_questions_for_one_human_and_how_to_answer(
    echelons: Call, folder: Path
) -> None:
    with (folder / "trips.py").open("a", encoding="utf-8") as file:
        file.write(HUMANS)
    echelons("run", "trips:humans", "Have it signed", "--thread", "rome")

    shown = echelons("inbox", "--for", "anna").stdout
    [signing] = map(json.loads, echelons("inbox", "--for", "anna", "--json").stdout.splitlines())

    assert "thread rome\nhead asks anna:\n  Sign it\nAnswer it with one of:\n" in shown
    assert f"echelons answer {signing['id']} VALUE " in shown
    assert '--json-value \'{"status": "unable", "reason": "TEXT"}\'' in shown
    assert "bert" not in shown
    assert (signing["addressee"], signing["asker"], signing["value"]) == ("anna", "head", "Sign it")
    assert echelons("inbox", "--for", "cleo").stdout == ""
    unable = '{"status": "unable", "reason": "ill"}'
    echelons("answer", signing["id"], unable, "--json-value")
    [paying] = map(json.loads, echelons("inbox", "--json").stdout.splitlines())
    assert paying["addressee"] == "bert"
    assert "Done." in echelons("answer", paying["id"], "paid").stdout


def test_a_watched_inbox_shows_each_question_once_as_it_is_asked(
    echelons: Call, start: Start
) -> None:
    echelons("run", "trips:asking", "A table", "--thread", "rome")
    watching = start("inbox", "--watch", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    echelons("run", "trips:two", "Both", "--thread", "oslo")

    others = [json.loads(watching.stdout.readline()) for _ in range(2)]
    watching.send_signal(signal.SIGINT)
    rest, remark = watching.communicate(timeout=60)

    assert (first["thread"], first["value"]) == ("rome", {"question": "Book it?"})
    assert {(each["thread"], each["path"]) for each in others} == {
        ("oslo", "head/one"),
        ("oslo", "head/other"),
    }
    assert (watching.returncode, rest) == (130, "")
    assert remark == "watching for questions; Ctrl-C ends this\n"


COPY = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def copied(echelons: Call, folder: Path) -> str:
    """The id of a question that is open in the thread `rome` and in a copy of it."""
    asked = echelons("run", "trips:growing", "A table", "--thread", "rome")
    with SqliteCheckpointer(folder / "trips.sqlite") as saver:
        saver.copy_thread(derive_root_thread_id("rome"), COPY)
    return ids(asked.stdout)[0]


def test_question_of_copy_is_answered_only_by_thread(echelons: Call, copied: str) -> None:
    refused = echelons("answer", copied[:8], "yes, do", "--by", "anna")

    assert refused.exit_code == 3
    assert f"question {copied} is in several threads" in refused.stderr
    for name in ("rome", COPY):
        command = f"echelons answer {copied} 'yes, do' --by anna --thread {name} --db trips.sqlite"
        assert command in refused.stderr
    assert "is in several threads" in echelons("answer", "yes").stderr
    assert len(ids(echelons("inbox").stdout)) == 2
    assert echelons("answer", copied, "yes", "--thread", COPY).exit_code == 0
    assert ids(echelons("inbox").stdout) == [copied]
    assert echelons("answer", copied, "yes").exit_code == 0


@pytest.mark.parametrize("words", [("dismiss",), ("message", "north"), ("steer", "north")])
def test_agent_of_copy_is_reached_only_by_thread(
    echelons: Call, copied: str, words: tuple[str, ...]
) -> None:
    command, *text = words
    yes = ["--yes"] * (command == "dismiss")
    scout = json.loads(echelons("inbox", "--json").stdout.splitlines()[0])["path"]
    refused = echelons(command, scout, *text, *yes, "--json")

    error = json.loads(refused.stderr.splitlines()[-1])
    assert (refused.exit_code, error["error"]) == (3, "ThreadAmbiguous")
    assert f"{' '.join([command, scout, *text])} --thread rome" in error["message"]
    done = echelons(command, scout, *text, *yes, "--thread", "rome")
    assert done.exit_code == 0
