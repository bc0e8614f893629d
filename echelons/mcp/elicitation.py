"""Elicitation, MCP's question to a human: from a server to our inbox, and the other way. Pure.

A server that elicits sends a form: a flat object of texts, numbers, booleans and choices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from echelons.checkpoints.threads.pending_work import Question
from echelons.delegation.questions import is_human_request
from echelons.text.error_lines import sanitize_value
from echelons.text.json_schema import find_mismatch, find_schema_fault

PRIMITIVE_TYPES = frozenset({"string", "number", "integer", "boolean"})
"""Types that a form may ask for."""
LONGEST_FORM = 16 * 1024
"""Characters of a form, as JSON, that is shown to a human."""
LONGEST_MESSAGE = 4000
"""Characters of a server's message that is shown to a human."""
ANSWER_FIELD = "answer"
"""The field of the form in which a question of a team is asked."""

_FORM_KEYS = frozenset({"type", "properties", "required", "title", "description"})
_FIELD_KEYS = frozenset(
    {"type", "title", "description", "default", "enum", "enumNames", "oneOf", "format"}
    | {"minLength", "maxLength", "minimum", "maximum"}
)


def clean_form(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form of a server with nothing but the keys that MCP has for one.

    A pattern, for example, could take any time to be matched.

    Examples:
        >>> day = {"type": "string", "pattern": "(a+)+"}
        >>> clean_form({"type": "object", "properties": {"day": day}, "not": {}})
        {'type': 'object', 'properties': {'day': {'type': 'string'}}}
    """
    form = {key: value for key, value in raw.items() if key in _FORM_KEYS}
    if isinstance(fields := form.get("properties"), Mapping):
        form["properties"] = {
            name: {key: value for key, value in schema.items() if key in _FIELD_KEYS}
            if isinstance(schema, Mapping)
            else schema
            for name, schema in fields.items()
        }
    return form


def find_form_fault(form: Mapping[str, Any]) -> str:
    """Return why a form cannot be shown to a human; empty if it can.

    Examples:
        >>> find_form_fault({"type": "object", "properties": {"day": {"type": "string"}}})
        ''
        >>> find_form_fault({"type": "object", "properties": {"days": {"type": "object"}}})
        "its field 'days' is neither a text, a number, a boolean nor a choice"
    """
    if form.get("type") != "object":
        return "it is no object"
    if len(json.dumps(form)) > LONGEST_FORM:
        return f"it has more than {LONGEST_FORM} characters"
    fields = form.get("properties")
    if not isinstance(fields, Mapping) or not fields:
        return "it has no fields"
    for name, schema in fields.items():
        if not _is_form_field(schema):
            return f"its field {name!r} is neither a text, a number, a boolean nor a choice"
    return find_schema_fault(form)


def build_form_schema(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the answer to a form: its fields, or that the human declines."""
    declined = {
        "type": "object",
        "properties": {"action": {"enum": ["decline", "cancel"]}},
        "required": ["action"],
        "additionalProperties": False,
    }
    # Otherwise a refusal would also be a form without its optional fields.
    return {"anyOf": [{**form, "additionalProperties": False}, declined]}


def read_form_answer(answer: Any, form: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Return the action and the content that an answer of the inbox means to a server.

    Examples:
        >>> form = {"type": "object", "properties": {"day": {"type": "string"}}}
        >>> read_form_answer({"day": "Friday"}, form)
        ('accept', {'day': 'Friday'})
        >>> read_form_answer({"action": "decline"}, form)
        ('decline', None)
    """
    fields = form.get("properties", {})
    if not isinstance(answer, Mapping):
        return "cancel", None
    if "action" not in fields and set(answer) == {"action"}:
        return ("cancel" if answer["action"] == "cancel" else "decline"), None
    return ("cancel", None) if find_mismatch(answer, form) else ("accept", dict(answer))


def build_question_form(question: Question) -> dict[str, Any] | None:
    """Return the form in which a client can ask its human a question of a team.

    Returns:
        A form with one field, or `None` if the question asks for more than a text, a number, a
        boolean or a choice, such as for a decision on a tool call.
    """
    schema = question.schema
    if question.choices:
        schema = {"type": "string", "enum": list(question.choices)}
    elif schema is None or is_human_request(schema):
        schema = {"type": "string"}
    if question.reviewed_calls or not _is_form_field(schema):
        return None
    # A client may know no other keys.
    kept = ("type", "enum", "title", "minLength", "maxLength", "minimum", "maximum", "format")
    field = {key: schema[key] for key in kept if key in schema}
    field.setdefault("type", "string")
    return {"type": "object", "properties": {ANSWER_FIELD: field}, "required": [ANSWER_FIELD]}


def describe_interrupt_value(value: Any) -> str:
    r"""Return what the value of an interrupt asks: its question with a line for each fact, or JSON.

    Examples:
        >>> describe_interrupt_value({"question": "Is it confirmed?", "people": 2})
        'Is it confirmed?\npeople: 2'
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or not isinstance(value.get("question"), str):
        return _to_json(value)
    facts = {key: fact for key, fact in value.items() if key not in ("kind", "question", "choices")}
    lines = [
        f"{key}: {fact if isinstance(fact, str) else _to_json(fact)}" for key, fact in facts.items()
    ]
    return "\n".join([value["question"], *lines])


def _to_json(value: Any) -> str:
    return json.dumps(sanitize_value(value), default=repr, ensure_ascii=False)


def describe_question(question: Question) -> dict[str, Any]:
    """Return a question as JSON, for a client that answers it with a call."""
    described: dict[str, Any] = {
        "id": question.id,
        "from": question.path,
        "question": describe_interrupt_value(question.value),
    }
    if question.schema is not None:
        described["schema"] = dict(question.schema)
    if question.choices:
        described["choices"] = list(question.choices)
    if question.reviewed_calls:
        described["calls"] = [
            {"tool": call.tool, "arguments": dict(call.arguments), "allowed": list(call.allowed)}
            for call in question.reviewed_calls
        ]
    return described


def _is_form_field(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    kind, choices = schema.get("type"), schema.get("enum")
    if "oneOf" in schema:
        ways = schema["oneOf"] if isinstance(schema["oneOf"], list) else [None]
        choices = [way.get("const") if isinstance(way, Mapping) else None for way in ways]
    if choices is None:
        return isinstance(kind, str) and kind in PRIMITIVE_TYPES
    # A choice may stand without its type.
    is_list = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    return is_list and kind in (None, "string")
