from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.loopback_server import LoopbackServer, serve_on_loopback


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_on_loopback() as running:
        yield running
