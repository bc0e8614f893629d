"""Permissions never change and refuse what is no rule; of several rules the strictest holds."""

from __future__ import annotations

import functools
import logging
import pickle
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from echelons import Permissions
from echelons.errors import InvalidSetting
from echelons.guards.permissions import (
    NO_PERMISSIONS,
    describe_rule,
    extend_rules,
    judge_call,
    rank_rule,
)


def ask_always(arguments: Mapping[str, Any]) -> Any:
    return "ask"


async def ask_slowly(arguments: Mapping[str, Any]) -> Any:
    return "ask"


class Slow:
    async def __call__(self, arguments: Mapping[str, Any]) -> Any:
        return "ask"


class Rule:
    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        return "deny"


def test_rules_are_words_or_predicates() -> None:
    rule = Rule()
    given: dict[str, Any] = {"a": "allow", "b": "ask", "c": "deny", "d": ask_always, "e": rule}

    permissions = Permissions(approvals=given)

    assert dict(permissions.approvals) == given
    assert repr(permissions.approvals) == repr(given)
    assert Permissions().approvals == {}


def test_permissions_do_not_change() -> None:
    given: dict[str, Any] = {"a": "ask"}
    permissions = Permissions(approvals=given)
    given["a"] = "allow"

    assert permissions.approvals["a"] == "ask"
    with pytest.raises(TypeError):
        permissions.approvals["a"] = "allow"  # type: ignore[index]
    with pytest.raises(ValidationError):
        permissions.approvals = {}
    assert pickle.loads(pickle.dumps(permissions)) == permissions


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"a": "yes"}, "give 'allow', 'ask', 'deny'"),
        ({"a": True}, "or a function"),
        ({"a": None}, "or a function"),
        ({"a": ["ask"]}, "or a function"),
        ({"a": Rule}, "or a function"),
        ({"a": ask_slowly}, "not asynchronous"),
        ({"a": functools.partial(ask_slowly)}, "not asynchronous"),
        ({"a": Slow()}, "not asynchronous"),
        ({7: "ask"}, "the name of a tool"),
        ({"": "ask"}, "the name of a tool"),
        (["a"], "give a mapping"),
        ("ask", "give a mapping"),
        (None, "give a mapping"),
    ],
)
def test_anything_else_is_refused_by_name(given: Any, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why) as refused:
        Permissions(approvals=given)

    assert refused.value.owner == "Permissions"
    assert refused.value.setting.startswith("approvals")


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="there is no such setting, but approvals"):
        Permissions(approval={"a": "ask"})  # type: ignore[call-arg]


def test_the_rules_stand_in_the_order_of_their_strictness() -> None:
    ranked = sorted(["deny", ask_always, "allow", "ask"], key=rank_rule)  # type: ignore[arg-type]

    assert ranked == ["allow", ask_always, "ask", "deny"]
    assert [describe_rule(each) for each in ranked] == [  # type: ignore[arg-type]
        "'allow'",
        "a predicate",
        "'ask'",
        "'deny'",
    ]


def test_what_is_only_allowed_adds_no_rule() -> None:
    allowed = Permissions(approvals={"a": "allow", "b": "ask"})

    assert extend_rules({}, allowed) == {"b": ("ask",)}
    assert extend_rules({"a": ("ask",)}, allowed) == {"a": ("ask",), "b": ("ask",)}
    above = {"a": ("ask",)}
    assert extend_rules(above, NO_PERMISSIONS) is above  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ((), "allow"),
        (("ask", "deny"), "deny"),
        ((ask_always,), "ask"),
        ((lambda arguments: "allow", lambda arguments: "deny"), "deny"),
        ((lambda arguments: "allow",), "allow"),
    ],
)
def test_the_strictest_verdict_holds(rules: Any, verdict: str) -> None:
    assert judge_call(rules, "mail", {"to": "bob"}) == verdict


@pytest.mark.parametrize(
    "rule",
    [
        lambda arguments: arguments["nothing"],
        lambda arguments: None,
        lambda arguments: True,
        lambda arguments: "ALLOW",
        lambda arguments: ["allow"],
        lambda arguments: object(),
        ask_slowly,
        lambda arguments, more: "allow",
    ],
)
def test_a_predicate_that_fails_asks_and_says_so_in_the_log(
    rule: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
        warnings.simplefilter("error")
        assert judge_call([rule], "mail", {}) == "ask"

    assert "the predicate for 'mail'" in caplog.text


def test_a_predicate_cannot_change_the_arguments() -> None:
    given = {"to": {"name": "bob"}}

    def change(arguments: Any) -> Any:
        arguments["to"]["name"] = "eve"
        return "allow"

    assert judge_call([change], "mail", given) == "allow"
    assert given == {"to": {"name": "bob"}}
