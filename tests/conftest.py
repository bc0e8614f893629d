"""What every test gets: the server's tests are skipped where the server is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if find_spec("langgraph_cli") is not None:
        return
    missing = pytest.mark.skip(reason="needs the extra echelons[studio]; `make studio-test` has it")
    for item in items:
        if item.get_closest_marker("studio") is not None:
            item.add_marker(missing)
