"""No test reaches beyond this machine."""

from __future__ import annotations

import socket

import pytest


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "10.0.0.1"])
def test_a_connection_that_leaves_the_machine_is_refused(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as client, pytest.raises(ConnectionRefusedError, match="a test"):
        client.connect((host, 80))


def test_one_on_loopback_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            assert client.getpeername() == server.getsockname()
