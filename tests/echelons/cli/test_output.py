"""An error of a command is printed without secrets, whoever raised it."""

from __future__ import annotations

import json

import pytest

from echelons.cli.command import ExitCode, print_error
from echelons.errors import invalid_team


def test_an_error_is_printed_without_secrets_and_private_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = invalid_team("trips:mine", "it needs password=hunter2")
    error.add_note("hunter2")

    print_error(error, ExitCode.REFUSED, as_json=True)
    print_error(error, ExitCode.REFUSED, as_json=False)
    print_error(ValueError("api_key: hunter2"), ExitCode.UNEXPECTED, as_json=True)

    printed = capsys.readouterr().err
    refused, _, unexpected = printed.splitlines()
    assert json.loads(refused)["why"] == "it needs password=[redacted]"
    assert json.loads(refused)["team"] == "trips:mine"
    assert json.loads(unexpected)["message"] == "ValueError: api_key: [redacted]"
    assert "hunter2" not in printed
