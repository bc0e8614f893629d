"""The folder of a new team: a head and two subordinates, one with a tool, that run offline."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from echelons.errors import ConfigurationError, invalid_name, invalid_team
from echelons.tree.names import check_name

EXAMPLE_TASK: Final = "Add 3 and 4"
"""A task for the new team."""

_FILES: Final = {
    "prompt.md": """\
You lead this team. Give each part of the task to the subordinate that fits, then put the answers
together.
""",
    "settings.toml": """\
# Every field of an Agent that is data can stand here. The folders beside this file are the
# subordinates. `echelons check` finds what is wrong.
description = "Answers questions about numbers and dates"

[limits]
calls = 100
""",
    "default/prompt.md": """\
Answer only from what your tools return, and say what you do not know.
""",
    "numbers/settings.toml": """\
description = "Adds numbers up"

[capabilities]
add = 0.9
sum = 0.9
""",
    "numbers/tools/arithmetic.py": '''\
"""Each function whose name does not begin with `_` is a tool; its docstring is for the model."""

import re


def add_up(task: str) -> str:
    """Add up all numbers in a task.

    Args:
        task: The task, with the numbers in it.
    """
    found = [float(each) for each in re.findall(r"-?\\d+(?:[.]\\d+)?", task)]
    return f"The sum is {sum(found):g}"
''',
    "dates/settings.toml": """\
description = "Tells the day of the week of a date"

[capabilities]
weekday = 0.9
date = 0.8
""",
    "dates/tools/calendar.py": '''\
"""A tool of the agent `dates`."""

from datetime import date


def find_weekday(day: str) -> str:
    """Find the day of the week of a date.

    Args:
        day: The date, as 2026-03-01.
    """
    return f"{day} is a {date.fromisoformat(day):%A}"
''',
}


def write_scaffold(folder: Path) -> list[str]:
    """Write the files of a new team into a new folder, and return their paths from it on.

    Raises:
        ConfigurationError: The name of the folder is none of an agent.
        TeamError: There is something already, or it cannot be written.
    """
    try:
        check_name(folder.absolute().name)
    except ConfigurationError as error:
        raise invalid_name(folder.name, "the folder's name is that of the root agent") from error
    try:
        folder.mkdir(parents=True)
        for name, text in _FILES.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        why = "there is something of that name already; choose another name"
        raise invalid_team(str(folder), why) from error
    except OSError as error:
        raise invalid_team(str(folder), f"it cannot be written: {error.strerror}") from error
    return list(_FILES)
