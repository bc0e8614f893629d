"""The interface of a tool that runs code. Nothing here runs any.

Python cannot confine Python: code in the same process, or in a plain subprocess, may read every
file and key of the user, and talk to every host. A runner must therefore be a sandbox of its own,
such as a container or a virtual machine without network, with limits on memory, time and disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from echelons.errors import InvalidSetting

MAX_OUTPUT: Final = 20_000
"""Characters of a program's output that a model reads at most."""


@dataclass(frozen=True, slots=True)
class CodeResult:
    """The result of a program.

    Attributes:
        output: Its standard output and errors together.
        exit_code: 0 if it succeeded.
    """

    output: str
    exit_code: int = 0


@runtime_checkable
class CodeRunner(Protocol):
    """A sandbox that runs programs.

    The implementation is responsible for what a program can reach: the library adds no protection.
    """

    def run_code(self, code: str, timeout: float) -> CodeResult:
        """Run a program, and end it after `timeout` seconds.

        Args:
            code: The program, written by a model: anything at all.
            timeout: Seconds after which the program is ended.
        """
        ...


class CodeInput(BaseModel):
    """What `run_code` takes."""

    code: str = Field(description="The whole program; only what it prints is returned")


def build_code_tool(
    runner: CodeRunner, *, language: str = "Python", timeout: float = 30.0
) -> BaseTool:
    """Return a tool that runs programs of a model in a sandbox of yours.

    Warning:
        The library has no runner, and runs nothing by default. Never implement one with `exec` or
        a plain subprocess. Give the tool a rule as well, so that a human sees each program before
        it runs: `Permissions(approvals={"run_code": "ask"})`. It is journaled as a call with
        effects: one that was cut short is asked about, not run again.

    Args:
        runner: The sandbox.
        language: The language of the programs, for the model.
        timeout: Seconds after which a program is ended, for the sandbox.

    Raises:
        InvalidSetting: `runner` has no `run_code`, or `timeout` is not above 0.
    """
    sandbox: object = runner
    if not isinstance(sandbox, CodeRunner):
        why = "pass a sandbox with a method run_code(code, timeout)"
        raise InvalidSetting("build_code_tool", "runner", sandbox, why)
    if not timeout > 0:
        raise InvalidSetting("build_code_tool", "timeout", timeout, "pass seconds above 0")

    def run_code(code: str) -> str:
        result = runner.run_code(code, timeout)
        output = result.output
        if len(output) > MAX_OUTPUT:
            output = f"{output[:MAX_OUTPUT]}\n[{len(result.output) - MAX_OUTPUT} more characters]"
        return f"exit code {result.exit_code}\n{output}"

    return StructuredTool(
        name="run_code",
        description=f"Run a {language} program in a sandbox, and return what it prints.",
        args_schema=CodeInput,
        func=run_code,
    )
