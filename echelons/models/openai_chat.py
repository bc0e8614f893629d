"""OpenAI's models, and servers that speak its protocol, as chat models with our settings.

`resolve` calls it for `"openai:NAME"`. Loading langchain-openai takes a second, so it is
imported only when such a model is made.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from echelons.errors import InvalidModelAddress, ModelKeyMissing

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

KEY_VARIABLE = "OPENAI_API_KEY"
ADDRESS_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
"""The first one that is set counts: the SDK's name, then LangChain's older one."""

PROXY_VARIABLE = "OPENAI_PROXY"
"""LangChain's name for a proxy to OpenAI alone; the usual variables count as well."""

OPENAI_ADDRESS = "https://api.openai.com/v1"
NO_KEY = "no-key-needed"
"""Sent to a server on loopback where no key is set; the SDK insists on some key."""

MAX_RETRIES = 2
"""Attempts after the first, on 408, 409, 429, 5xx, timeouts and broken connections."""

TIMEOUT_SECONDS = 60.0
"""The longest silence of the server: until the answer begins, and between its parts."""


def openai_chat(name: str) -> ChatOpenAI:
    """The named model, with the key and the address that the environment gives.

    A server on loopback needs no key, and no proxy stands between it and us, whatever the
    proxy variables say.

    Errors of the provider surface as they are, once all attempts are spent:
    `openai.RateLimitError` (429), `openai.InternalServerError` (5xx),
    `openai.APITimeoutError` (silence before the answer), `openai.APIConnectionError`.
    A stream that has begun is not tried again.

    Args:
        name: The model's name as the server knows it.

    Raises:
        ModelKeyMissing: There is no key, and the server is not on loopback.
        InvalidModelAddress: The address is not one of http or https with a host.
    """
    address, loopback = _address()
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and not loopback:
        raise ModelKeyMissing(f"openai:{name}", KEY_VARIABLE)
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return ChatOpenAI(
        model=name,
        api_key=SecretStr(key or NO_KEY),
        base_url=address,
        max_retries=MAX_RETRIES,
        timeout=TIMEOUT_SECONDS,
        stream_usage=True,
        **_http_clients(direct=loopback),
    )


def _address() -> tuple[str, bool]:
    """Where the model is served, and whether that is this machine."""
    for variable in ADDRESS_VARIABLES:
        if value := os.environ.get(variable, "").strip():
            return value, _is_loopback(_host(variable, value))
    return OPENAI_ADDRESS, False


def _host(variable: str, value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port  # reading the port checks it
    except ValueError as error:
        raise InvalidModelAddress(variable, value) from error
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidModelAddress(variable, value)
    return host


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _http_clients(direct: bool) -> dict[str, Any]:
    """The HTTP clients; direct ones read no proxy from the environment."""
    from echelons.models.http_clients import AsyncClient, SyncClient

    proxy = None if direct else os.environ.get(PROXY_VARIABLE, "").strip() or None
    return {
        "http_client": SyncClient(trust_env=not direct, proxy=proxy),
        "http_async_client": AsyncClient(trust_env=not direct, proxy=proxy),
        # LangChain must neither add a proxy of its own nor warn about options it would set.
        "openai_proxy": None,
        "http_socket_options": (),
    }
