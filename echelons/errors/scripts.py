"""Errors of the scripts that test models and test servers play."""

from __future__ import annotations

from echelons.errors.base import EchelonsError


class ScriptError(EchelonsError):
    """A script of a test model cannot be followed."""


def invalid_script(found: str, expected: str) -> ScriptError:
    """Return the error of a script, or a step of one, of an invalid type."""
    return ScriptError(
        "a script cannot hold {found}; expected {expected}",
        code="invalid_script",
        found=found,
        expected=expected,
    )


def script_exhausted(agent: str | None, step: int, length: int) -> ScriptError:
    """Return the error of a conversation that is longer than its script."""
    return ScriptError(
        f"the script of {'{agent}' if agent else 'any agent'} has {{length}} steps, and step "
        "{step} (counted from 0) was asked for; add a step, or find out why the agent goes on",
        code="script_exhausted",
        agent=agent,
        step=step,
        length=length,
    )
