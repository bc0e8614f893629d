"""The corpus of short true documents that these tests ask questions of."""

from pathlib import Path

import pytest

from echelons.teams.research import Survey, survey


@pytest.fixture(scope="session")
def corpus() -> Path:
    return Path(__file__).parent / "corpus"


@pytest.fixture(scope="session")
def surveyed(corpus: Path) -> Survey:
    return survey(corpus)
