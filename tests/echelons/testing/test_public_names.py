"""What `echelons.testing` offers, and what it costs to import it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import echelons.testing


@pytest.mark.parametrize("name", echelons.testing.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(echelons.testing, name) is not None
    assert name in dir(echelons.testing)


def test_an_unknown_name_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = echelons.testing.Nothing


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("echelons.testing", "langchain_core"),
        ("echelons.models", "langchain_core"),
        ("echelons.testing.openai_server", "langchain_core"),
        ("echelons.testing.scripted_model", "langchain_openai"),
    ],
)
def test_importing_stays_cheap(module: str, heavy: str) -> None:
    program = f"import sys, {module}; sys.exit({heavy!r} in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
