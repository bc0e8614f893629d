"""Errors of the scripts that test models and test servers play."""

from __future__ import annotations

from collections.abc import Sequence

from echelons.errors.base import EchelonsError


class ScriptError(EchelonsError):
    """A script of a test model cannot be followed."""


class InvalidScript(ScriptError):
    """A script, or a step of one, has an invalid type.

    Attributes:
        found: What was found, described.
        expected: What is allowed there.
    """

    found: str
    expected: str
    message = "a script cannot hold {found}; expected {expected}"


class ScriptMissing(ScriptError):
    """An agent called a scripted model that has no script for it.

    Attributes:
        agent: The calling agent, or None where the call named none.
        known: The agents that have a script.
    """

    agent: str | None
    known: Sequence[str]

    def _describe(self) -> str:
        caller = "a caller without a name" if self.agent is None else f"agent {self.agent!r}"
        return (
            f"no script for {caller}; scripts exist for {', '.join(self.known) or 'none'}; "
            'add one under its name, or one for any agent under "*"'
        )


class ScriptExhausted(ScriptError):
    """A conversation is longer than its script.

    Attributes:
        agent: The calling agent, or None where the call named none.
        step: The step that was asked for, counted from 0.
        length: How many steps the script has.
    """

    agent: str | None
    step: int
    length: int

    def _describe(self) -> str:
        return (
            f"the script of {self.agent or 'any agent'} has {self.length} steps, and step "
            f"{self.step} (counted from 0) was asked for; add a step, or find out why the agent "
            "goes on"
        )


class RequestRefused(ScriptError):
    """A scripted model got a request that a provider would refuse.

    Attributes:
        agent: The calling agent, or None where the call named none.
        fault: What the providers refuse: the rule, and where it is broken.
    """

    agent: str | None
    fault: str

    def _describe(self) -> str:
        return (
            f"a provider would refuse this request of {self.agent or 'a caller without a name'}: "
            f"{self.fault}"
        )
