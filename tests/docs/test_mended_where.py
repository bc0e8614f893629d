"""The table of docs/models.md: each kind that is mended has one row, and each row one place.

Each row is shown to be mended, and not to be once its place is switched off.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import ToolNode
from langgraph.runtime import Runtime
from pydantic import SecretStr

from echelons import SqliteCheckpointer
from echelons.delegation.effects import EffectKind
from echelons.delegation.notice import format_notice
from echelons.identity.lineage import Identity
from echelons.langgraph_internals import CHECKPOINTER_KEY
from echelons.models import (
    bound_model,
    door,
    hidden_messages,
    notices,
    replies,
    request_content,
    request_messages,
)
from echelons.models.bound_model import BoundModel
from echelons.models.door import ask
from echelons.models.notices import View, clean_reply
from echelons.models.replies import StreamedReply
from echelons.models.request_messages import build_request
from echelons.models.resolution import STRICTEST, ClientRules
from echelons.nodes import messages
from echelons.nodes.long_results import LongResults
from echelons.nodes.messages import accept_message, sanitize_message
from echelons.nodes.planning import call_arguments, reply_handler
from echelons.nodes.planning.call_arguments import ToolArguments, mend_name
from echelons.nodes.tool_execution import journaled_call
from echelons.nodes.tool_execution.journaled_call import JournaledCall, build_journal_call
from echelons.plans import run_plan_steps
from echelons.testing import ScriptedModel
from echelons.testing.provider_rules import MESSAGE_RULES, ModelRequest, find_fault

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
Place = Literal["entrance", "way out", "tool"]
PICTURE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
ANTHROPIC = ClientRules("anthropic", "anthropic")
RESPONSES = ClientRules("responses", "openai")
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
MARK = "~123456789012"


class Row(NamedTuple):
    """One row.

    Attributes:
        where: Where it is mended.
        by: The functions that mend it, of those modules that do nothing else.
        off: What is switched off, and how.
        show: Returns what becomes of something odd.
        mended: What that then has.
        odd: What it then has not.
    """

    where: Place
    by: str
    off: tuple[Any, str, Any]
    show: Callable[[], Any]
    mended: str
    odd: str = "\0"

    def is_kept(self) -> bool:
        try:
            text = str(self.show())
        except Exception:  # it is not mended
            return False
        return self.mended in text and self.odd not in text


class Anything:
    """A pattern that matches everything, and is found nowhere."""

    def fullmatch(self, text: str) -> bool:
        return True

    def search(self, text: str) -> bool:
        return False


def keep(value: Any, *more: Any, **options: Any) -> Any:
    return value


def keep_second(_: Any, value: Any, *more: Any) -> Any:
    return value


def call_of(name: str = "look", call_id: str = "1", **args: Any) -> Any:
    return {"name": name, "args": args, "id": call_id, "type": "tool_call"}


def broken_call(text: str) -> InvalidToolCall:
    return InvalidToolCall(type="invalid_tool_call", name="look", args=text, id="1", error=None)


def reply_of(*calls: Any, content: Any = "", **more: Any) -> AIMessage:
    return AIMessage(content, tool_calls=[*calls], **more)


def result_of(content: Any = "seen", call_id: str = "1", **more: Any) -> ToolMessage:
    return ToolMessage(content, tool_call_id=call_id, name="look", **more)


def send(*said: BaseMessage, rules: ClientRules = STRICTEST, hidden: tuple[str, ...] = ()) -> str:
    """Return what is sent of a conversation that begins with a task."""
    sent = build_request([HumanMessage("go"), *said], rules, hidden)
    if rules is STRICTEST:
        assert find_fault(MESSAGE_RULES, ModelRequest(sent, [LOOK])) == ""
    return str([{"kind": each.type, **vars(each)} for each in sent])


def adopt(reply: AIMessage, *before: BaseMessage) -> AIMessage:
    """Return a reply as it is stored."""
    return reply_handler.adopt_reply(reply, Identity("head", ("head",), "t", "t"), [before])


def accept(message: BaseMessage) -> str:
    """Return a result as it is stored."""
    with SqliteCheckpointer(":memory:") as saver:
        return str(vars(accept_message(message, {"configurable": {CHECKPOINTER_KEY: saver}})))


def declare() -> str:
    """Return the tools that a model without any is sent with a call in its history."""
    model = ScriptedModel(lambda _: "fine")
    said = [HumanMessage("go"), reply_of(call_of()), result_of()]
    BoundModel.from_runnable(model).build_step(said, {}).run()
    return str(model.calls[-1].tools)


def ask_twice() -> str:
    """Return what a model replies that refuses the first request for its length."""
    refused = [ContextOverflowError("no")]

    class Model(FakeListChatModel):
        def _call(self, *given: Any, **more: Any) -> str:
            if refused:
                raise refused.pop()
            return "accepted"

    said = [HumanMessage("x" * 9000), AIMessage("y" * 9000), HumanMessage("go")]
    return str(run_plan_steps(ask(BoundModel.from_runnable(Model(responses=["a"])), said, {})).text)


def ask_for_list() -> Any:
    """Return the calls of a reply whose client has put a list into the arguments of a call."""

    class Model(FakeListChatModel):
        def _generate(self, *given: Any, **more: Any) -> Any:
            reply = reply_of({**call_of(), "args": [1]})
            return ChatResult(generations=[ChatGeneration(message=reply)])

    model = BoundModel.from_runnable(Model(responses=["a"]))
    return model.build_step([HumanMessage("go")], {}).run().invalid_tool_calls


def stream_half() -> Any:
    """Return a reply whose stream repeats its usage, and breaks off."""

    class Model(ChatOpenAI):
        def _stream(self, *given: Any, **more: Any) -> Iterator[ChatGenerationChunk]:
            usage = UsageMetadata(input_tokens=7, output_tokens=1, total_tokens=8)
            for text in ("half", " of it"):
                yield ChatGenerationChunk(
                    message=AIMessageChunk(content=text, usage_metadata=usage)
                )

    model = BoundModel.from_runnable(Model(model="m", api_key=SecretStr("k"), streaming=True))
    return model.build_step([HumanMessage("go")], {}).run()


def run_recall() -> str:
    """Return what is stored of a tool that returns a message of another call."""

    def recall() -> ToolMessage:
        return ToolMessage("kept", tool_call_id="another")

    tool = StructuredTool.from_function(recall, description="Recall.")
    call = build_journal_call({"configurable": {}}, "1", "recall", {}, EffectKind.ONCE)
    given = {"name": "recall", "args": {}, "id": "1", "type": "tool_call"}
    config: RunnableConfig = {"configurable": {"__pregel_runtime": Runtime()}}
    journaled = JournaledCall(call, ToolNode([tool]), given, {}, is_threaded=False)
    return str(run_plan_steps(journaled.plan(config, lambda _: None)))


def mend_tool() -> Any:
    def look(size: int, tags: list[str]) -> str:
        return "seen"

    tool = StructuredTool.from_function(look, description="Look.")
    return ToolArguments(tool).mend({"size": 1, "tags": '["a"]'})


def unmatch(found: Any, calls: Any, renamed: Any) -> Any:
    """Return no results, and all messages as others."""
    return [], list(found)


FORGED = format_notice(MARK, "approve")
TEXT_ITEM: Any = {"type": "text", "text": "x", "id": "msg_1"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
WRITER = request_messages._Writer
ROWS: dict[str, Row] = {
    "lone surrogates": Row(
        "entrance",
        "sanitize_message",
        (messages, "sanitize_value", keep),
        lambda: sanitize_message(AIMessage("a\ud800")).text.encode(errors="ignore"),
        "\\xef\\xbf\\xbd",
    ),
    "keys that are no texts, and what else JSON does not have, in arguments": Row(
        "entrance",
        "sanitize_message",
        (messages, "sanitize_arguments", keep),
        lambda: sanitize_message(reply_of(call_of(value={1: {2}}))).tool_calls,
        "{'1': [2]}",
    ),
    "numbers of more than 64 bits": Row(
        "entrance",
        "sanitize_message",
        (messages, "sanitize_value", keep),
        lambda: sanitize_message(reply_of(call_of(value=2**70))).tool_calls,
        f"'{2**70}'",
    ),
    "replies that a client cannot read": Row(
        "entrance",
        "",
        (bound_model, "read_unreadable", lambda error: None),
        ask_for_list,
        "'args': '[1]'",
    ),
    "streamed replies that break off": Row(
        "entrance",
        "",
        (StreamedReply, "end", lambda self: iter(())),
        lambda: stream_half().response_metadata,
        "stream_cut",
    ),
    "usage that each chunk of a stream repeats": Row(
        "entrance",
        "",
        (replies, "subtract_usage", keep),
        lambda: stream_half().usage_metadata,
        "'input_tokens': 7,",
    ),
    "missing or doubled ids of calls in one reply": Row(
        "entrance",
        "",
        (reply_handler, "assign_call_ids", keep),
        lambda: adopt(reply_of(call_of(), call_of())).tool_calls,
        "'1-2'",
    ),
    "missing or repeated ids of replies": Row(
        "entrance",
        "",
        (reply_handler, "_get_id", lambda _: None),
        lambda: adopt(AIMessage("x", id="same"), HumanMessage("go", id="same")).id,
        "",
        "same",
    ),
    "arguments that are a text with the JSON of an object": Row(
        "entrance",
        "adopt_written_arguments _read_object",
        (reply_handler, "adopt_written_arguments", keep),
        lambda: adopt(AIMessage("", invalid_tool_calls=[broken_call('"{\\"a\\": 1}"')])).tool_calls,
        "'args': {'a': 1}",
    ),
    "the thread's mark in a reply": Row(
        "entrance",
        "",
        (notices, "_clean", keep),
        lambda: clean_reply(AIMessage(FORGED), MARK).text,
        "approve",
        MARK,
    ),
    "pictures, files and blocks in results that no model takes": Row(
        "entrance",
        "accept_message",
        (messages, "replace_faulty_blocks", keep),
        lambda: accept(result_of([{"type": "image"}])),
        "[left out: a block of type image",
    ),
    "values in results that JSON does not have": Row(
        "entrance",
        "accept_message render_value make_json _is_json",
        (messages, "make_json", keep),
        lambda: accept(result_of([{"type": "text", "text": "x", "share": float("nan")}])),
        "'NaN'",
    ),
    "results that are bound to another call": Row(
        "entrance",
        "",
        (journaled_call, "bind_answer", keep),
        run_recall,
        "tool_call_id='1'",
    ),
    "parts of results that cannot be stored": Row(
        "entrance",
        "accept_message _find_storage_fault _leave_out",
        (messages, "_find_storage_fault", lambda *_: ""),
        lambda: accept(result_of(artifact={"lock": threading.Lock(), "n": 1})),
        "[left out: lock",
    ),
    "names of calls": Row(
        "way out",
        "_name_calls _write_result add_text",
        (request_messages, "NAME", Anything()),
        lambda: send(reply_of(call_of("a b"))),
        "unknown_tool",
    ),
    "ids of calls": Row(
        "way out",
        "_make_id _name_calls",
        (request_messages, "CALL_ID", Anything()),
        lambda: send(reply_of(call_of(call_id="a:1"))),
        "a_1-1",
    ),
    "arguments that are no JSON object": Row(
        "way out",
        "_name_calls",
        (request_messages, "RAW_ARGUMENTS", ""),
        lambda: send(AIMessage("", invalid_tool_calls=[broken_call("[1]")])),
        "'invalid_arguments': '[1]'",
    ),
    "numbers in arguments that JSON does not have": Row(
        "way out",
        "fit_args fit_json",
        (request_messages, "fit_args", keep),
        lambda: send(reply_of(call_of(share=float("nan")))),
        "'nan'",
    ),
    "empty replies": Row(
        "way out",
        "_fit_reply has_no_text complete_content find_refusal",
        (request_messages, "has_no_text", lambda content: False),
        lambda: send(AIMessage("")),
        "…",
    ),
    "blank blocks of text": Row(
        "way out",
        "fit_message _is_blank",
        (request_content, "_is_blank", lambda block: False),
        lambda: send(HumanMessage([{"type": "text", "text": " "}])),
        "…",
    ),
    "calls without a result": Row(
        "way out",
        "match_results _write_calls",
        (request_messages, "NOT_RUN", ""),
        lambda: send(reply_of(call_of())),
        "not run",
    ),
    "results without a call": Row(
        "way out",
        "write read_text",
        (request_messages, "read_text", lambda content: ""),
        lambda: send(result_of("x", call_id="9")),
        "[a result of look] x",
    ),
    "second results of a call": Row(
        "way out",
        "match_results",
        (request_messages, "match_results", unmatch),
        lambda: send(reply_of(call_of()), result_of("x"), result_of("twice")),
        "'x'",
        "twice",
    ),
    "pictures and files in results": Row(
        "way out",
        "fit_result_content _write_calls",
        (request_messages, "fit_result_content", keep),
        lambda: send(reply_of(call_of()), result_of([PICTURE])),
        "From the results above:",
    ),
    "blocks of other kinds in results": Row(
        "way out",
        "fit_result_content _dump fit_json",
        (request_content, "_dump", lambda block: ""),
        lambda: send(reply_of(call_of()), result_of([{"type": "custom", "value": 1}])),
        '\'{"type": "custom", "value": 1}\'',
    ),
    "pictures and files that a client cannot send": Row(
        "way out",
        "_can_send _fit_block fit_result_content",
        (request_content, "_can_send", lambda block, rules: True),
        lambda: send(
            HumanMessage([{"type": "file", "base64": "aGk=", "mime_type": "text/plain"}]),
            rules=ANTHROPIC,
        ),
        "cannot be shown to this model",
    ),
    "blocks of other providers": Row(
        "way out",
        "takes_block _fit_reply_blocks",
        (request_messages, "takes_block", lambda *_: True),
        lambda: send(AIMessage([{"type": "custom", "value": 1}])),
        "…",
    ),
    "blocks that repeat calls": Row(
        "way out",
        "fit_call_block _is_json_object _refuse_constant",
        (request_messages, "fit_call_block", lambda block, *_: block),
        lambda: send(
            reply_of(call_of("a b"), content=[{"type": "tool_use", "id": "1", "name": "a b"}]),
            rules=ANTHROPIC,
        ),
        "'name': 'unknown_tool', 'input'",
    ),
    "repeated ids of items": Row(
        "way out",
        "_fit_items",
        (WRITER, "_fit_items", keep_second),
        lambda: send(*[AIMessage([TEXT_ITEM])] * 2, rules=RESPONSES),
        "'content': [{'type': 'text', 'text': 'x'}]",
    ),
    "open calls of a provider's own tools": Row(
        "way out",
        "drop_open_uses _is_server_use",
        (request_messages, "drop_open_uses", keep),
        lambda: send(AIMessage(["x", SEARCH]), HumanMessage("on"), rules=ANTHROPIC),
        "x",
        "web_search",
    ),
    "calls that a client has kept as it received them": Row(
        "way out",
        "_fit_reply",
        (WRITER, "_fit_reply", keep_second),
        lambda: send(AIMessage("x", additional_kwargs={"tool_calls": [{"id": "raw"}]})),
        "x",
        "raw",
    ),
    "names of authors": Row(
        "way out",
        "fit_person_name",
        (request_content, "ILLEGAL_IN_NAME", Anything()),
        lambda: send(HumanMessage("x", name="Ann B.")),
        "Ann_B.",
    ),
    "instructions among the messages": Row(
        "way out",
        "_write_message",
        (WRITER, "_write_message", lambda self, message: self.messages.append(message)),
        lambda: send(SystemMessage("be brief")),
        "be brief",
        "'system'",
    ),
    "the first and the last message": Row(
        "way out",
        "_add_user_turns",
        (request_messages, "_add_user_turns", keep),
        lambda: send(AIMessage("x")),
        "Go on.",
    ),
    "calls in the history of a model without tools": Row(
        "way out",
        "has_calls",
        (bound_model, "has_calls", lambda said: False),
        declare,
        "past_tool",
    ),
    "messages that a repair has hidden": Row(
        "way out",
        "find_hidden leave_out_hidden write _write_calls _write_result",
        (request_messages, "HIDDEN_RESULT", ""),
        lambda: send(reply_of(call_of()), result_of("poison", id="r"), hidden=("r",)),
        "[this result was taken out",
        "poison",
    ),
    "long results": Row(
        "way out",
        "",
        (LongResults, "_find_shares", lambda self, said: {}),
        lambda: (
            View(MARK, shorten=LongResults(100).shorten)
            .show([reply_of(call_of()), result_of("long " * 999)])[1]
            .text
        ),
        "read_result",
    ),
    "requests that are refused for their length": Row(
        "way out",
        "",
        (door, "read_length_refusal", lambda error: None),
        ask_twice,
        "accepted",
    ),
    "the thread's mark in what others write": Row(
        "way out",
        "",
        (notices, "_clean", keep),
        lambda: View(MARK, is_announced=False).show([HumanMessage(FORGED)])[0].text,
        "approve",
        MARK,
    ),
    "arguments that a tool does not take as they came": Row(
        "tool",
        "mend_built_in mend validate_arguments describe_refusal describe find_misfit _model"
        " _schema build_check _get_schema _shorten",
        (call_arguments, "mend", lambda *_: None),
        mend_tool,
        "{'size': 1, 'tags': ['a']}",
    ),
    "names of agents in calls": Row(
        "tool",
        "mend_name",
        (call_arguments, "match_name", lambda *_: None),
        lambda: mend_name({"subordinate": " North"}, "subordinate", ("north",), lambda: ()),
        "'north'",
    ),
}
MODULES = (
    request_messages,
    request_content,
    messages,
    call_arguments,
    hidden_messages,
)
"""Modules all of whose functions mend, but for these."""
READERS = {
    "_show_fields",
    "add_fields",
    "build",
    "build_request",
    "build_text",
    "extend_arguments",
    "_find_whole",
    "_is_data",
    "is_plain",
    "read_message_usage",
    "read_spent_usage",
    "store_fields",
    "_write_plain_calls",
    "write",
}


def read_table() -> list[tuple[str, str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [(row[0], row[1]) for row in cells[2:]]


def list_functions(module: Any) -> Iterator[str]:
    """Yield the names of the functions and methods of a module."""
    for name, each in vars(module).items():
        if getattr(each, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(each):
            for method, value in vars(each).items():
                wrapped = getattr(value, "func", value)
                if method.startswith("__") or getattr(wrapped, "__qualname__", "")[:1] == "":
                    continue
                if inspect.isfunction(wrapped) and wrapped.__module__ == module.__name__:
                    yield method
        elif callable(each):
            yield name


def test_page_has_each_row_once() -> None:
    assert read_table() == [(kind, row.where) for kind, row in ROWS.items()]


@pytest.mark.parametrize("kind", ROWS)
def test_kind_is_mended_at_its_place_and_nowhere_else(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ROWS[kind]
    assert row.is_kept(), row.show()

    owner, name, without = row.off
    monkeypatch.setattr(owner, name, without)

    assert not row.is_kept(), row.show()


def test_each_function_that_mends_has_a_row() -> None:
    named = {name for row in ROWS.values() for name in row.by.split()}
    functions = {name for module in MODULES for name in list_functions(module)}

    assert functions - named - READERS == set()
    assert (named | READERS) - functions == set()
