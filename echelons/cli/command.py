"""What all commands share: grouped options, exit codes, errors in one line.

`command` wraps a command's function before Typer sees it.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer

from echelons.cli import output
from echelons.cli.exit_codes import ExitCode
from echelons.cli.options import OutputOptions
from echelons.errors import EchelonsError, ThreadBusy
from echelons.text.error_lines import format_traceback

BROKEN_PIPE_CODE = 141
"""Exit code of a program whose output pipe was closed by its reader: 128 + SIGPIPE."""


def command(function: Callable[..., ExitCode]) -> Callable[..., None]:
    """Turn a function into a Typer command.

    A parameter whose type is a dataclass of options becomes one option for each field.
    The function returns its exit code; an exception becomes one line on the standard error
    and an exit code. One of its dataclasses is an `OutputOptions`.
    """
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if _is_option_group(hint)}

    @wraps(function)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        how = next(value for value in given.values() if isinstance(value, OutputOptions))
        raise typer.Exit(_run_guarded(lambda: function(**given), how))

    del run.__wrapped__  # Typer would look through the wrapper at the dataclasses
    flat = _flatten_parameters(function, hints)
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return run


def _is_option_group(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _flatten_parameters(
    function: Callable[..., Any], hints: dict[str, Any]
) -> list[inspect.Parameter]:
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        if _is_option_group(hint):
            own = get_type_hints(hint, include_extras=True)
            flat += [
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=field.default,
                    annotation=own[field.name],
                )
                for field in fields(hint)
            ]
        else:
            flat.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
    return flat


def _run_guarded(work: Callable[[], ExitCode], how: OutputOptions) -> int:
    # A failure is logged with its traceback; users see the outcome, and `trace --errors` the rest.
    log = logging.getLogger("echelons")
    handler = logging.StreamHandler() if how.debug else logging.NullHandler()
    log.addHandler(handler)
    try:
        return work()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        output.print_remark("interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE_CODE
    except Exception as error:  # noqa: BLE001  the last line of defence: a line, not a traceback
        code = _choose_exit_code(error)
        if how.debug:
            output.print_remark(format_traceback(error))
        output.print_error(error, code, as_json=how.json)
        return code
    finally:
        log.removeHandler(handler)


def _choose_exit_code(error: Exception) -> ExitCode:
    if isinstance(error, ThreadBusy):
        return ExitCode.BUSY
    if isinstance(error, EchelonsError):
        return ExitCode.FAILED if error.code == "run_failed" else ExitCode.REFUSED
    return ExitCode.UNEXPECTED
