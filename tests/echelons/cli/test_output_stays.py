"""What the commands print without a terminal stays as it is recorded."""

from __future__ import annotations

from pathlib import Path

from tests.echelons.cli.command_output import RECORD, record


def test_commands_print_the_same_without_a_terminal(tmp_path: Path) -> None:
    """After a change that is meant: ``python -m tests.echelons.cli.command_output``."""
    assert record(tmp_path).split("\n") == RECORD.read_text(encoding="utf-8").split("\n")
