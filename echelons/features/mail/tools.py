"""`send_message`: its calls are answered when their reply is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.messages import ToolCall
from pydantic import AfterValidator, BaseModel

from echelons.errors import InvalidInput
from echelons.features.feature import BuiltIn
from echelons.features.mail.outgoing import SUPERIOR, list_spawned_siblings
from echelons.identity.lineage import require_identity
from echelons.messaging.mail import check_mail_text
from echelons.nodes.planning.tolerant_arguments import mend_name, validate_arguments
from echelons.prompts import fill_text, load_tool_texts
from echelons.run_context import get_context
from echelons.tree.names import SEND_MESSAGE

if TYPE_CHECKING:
    from echelons.nodes.planning.tool_calls import ReplyCalls

MAX_SHOWN_SIBLINGS = 32
"""Most names of agents beside it that an agent's model is shown."""


def _check_message(text: str) -> str:
    try:
        return check_mail_text(text)
    except InvalidInput as error:
        raise ValueError(str(error)) from error


class SendMessageArgs(BaseModel):
    """Arguments of `send_message`."""

    to: str
    message: Annotated[str, AfterValidator(_check_message)]


class SendMessage(BuiltIn):
    """The tool that sends a message to the superior, or to an agent beside the sender.

    Args:
        siblings: Names of the agents with the same superior, the sender's own included.
        is_needed: Whether the model is shown the tool without being told to.
    """

    name, arguments = SEND_MESSAGE, SendMessageArgs
    is_executed = False

    def __init__(self, siblings: tuple[str, ...] = (), *, is_needed: bool = True) -> None:
        self._siblings = siblings
        self.is_needed = is_needed

    def build_schema(self) -> dict[str, Any]:
        """Return what a model is shown of it."""
        properties = {"to": {"type": "string"}, "message": {"type": "string"}}
        schema = self._describe(properties, ["to", "message"])
        beside = ""
        if len(self._siblings) > 1:
            shown = ", ".join(self._siblings[:MAX_SHOWN_SIBLINGS])
            more = " and others" if len(self._siblings) > MAX_SHOWN_SIBLINGS else ""
            beside = fill_text(load_tool_texts(SEND_MESSAGE)["siblings"], names=f"{shown}{more}")
        to = schema["function"]["parameters"]["properties"]["to"]
        to["description"] = fill_text(to["description"], siblings=beside)
        return schema

    def mend_names(self, arguments: Mapping[str, Any], reply: ReplyCalls) -> dict[str, Any] | None:
        """Return the arguments with the name of the receiver that is meant."""
        names = (*reply.tools.siblings, SUPERIOR)
        return mend_name(arguments, "to", names, lambda: _list_spawned_siblings(reply))

    def accept(self, call: ToolCall, reply: ReplyCalls) -> str:
        """Take a message; return why it is refused, if it is."""
        wanted, tools = validate_arguments(SendMessageArgs, call["args"]), reply.tools
        if isinstance(wanted, str):
            return wanted
        if wanted.to != SUPERIOR and not tools.has_sibling(wanted.to):
            beside = _list_spawned_siblings(reply)
            if wanted.to not in beside:
                shown = [*tools.siblings, *sorted(beside)][:MAX_SHOWN_SIBLINGS]
                names = ", ".join((SUPERIOR, *(name for name in shown if name != tools.name)))
                return f"no agent beside you is called {wanted.to!r}; name one of: {names}"
        return ""


def _list_spawned_siblings(reply: ReplyCalls) -> frozenset[str]:
    """Return the names of the agents beside the sender that were made at run time."""
    config = reply.scope.config
    identity = require_identity(config)
    return list_spawned_siblings(get_context(config).request, reply.thread, identity)
