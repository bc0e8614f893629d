"""A program runs only in a sandbox that the caller brings, and as a call with effects."""

from __future__ import annotations

from typing import Any

import pytest

from echelons.delegation.effects import EffectKind, get_effect_kind
from echelons.errors import InvalidSetting
from echelons.tools import CodeResult, build_code_tool
from echelons.tools.code_runner import MAX_OUTPUT


class EchoRunner:
    """A sandbox in which a program can do nothing at all: it is returned as its own output."""

    def run_code(self, code: str, timeout: float) -> CodeResult:
        return CodeResult(f"{timeout:g} {code}", exit_code=3)


def test_a_program_is_given_to_the_runner() -> None:
    tool = build_code_tool(EchoRunner(), timeout=5)

    assert tool.invoke({"code": "1 / 0"}) == "exit code 3\n5 1 / 0"
    assert get_effect_kind(tool) is EffectKind.ONCE


def test_a_long_output_is_cut() -> None:
    answer = build_code_tool(EchoRunner()).invoke({"code": "x" * (MAX_OUTPUT + 7)})

    assert answer.endswith("[10 more characters]")


@pytest.mark.parametrize("wrong", [{"runner": exec}, {"runner": None}, {"timeout": 0}])
def test_there_is_no_runner_by_default(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="build_code_tool"):
        build_code_tool(**{"runner": EchoRunner(), **wrong})
