"""Chat models of OpenAI, and of servers with the same protocol, with our settings.

`resolution` uses it for `"openai:NAME"`. Importing langchain-openai takes a second, so it is
imported only when such a model is created.
"""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from echelons.errors import ModelError

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

KEY_VARIABLE = "OPENAI_API_KEY"
ADDRESS_VARIABLES = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
"""The first one that is set is used: the SDK's name, then LangChain's older one."""

PROXY_VARIABLE = "OPENAI_PROXY"
"""LangChain's name for a proxy to OpenAI alone; the usual variables count as well."""

OPENAI_ADDRESS = "https://api.openai.com/v1"
NO_KEY = "no-key-needed"
"""Sent to a server on loopback if no key is set, as the SDK requires one."""

MAX_RETRIES = 2
"""Retries after the first attempt, on 408, 409, 429, 5xx, timeouts and broken connections."""

TIMEOUT_SECONDS = 60.0
"""Longest silence of the server in seconds, before the answer and between its parts."""


def create_openai_chat(name: str) -> ChatOpenAI:
    """Return the named model, with the key and the address from the environment.

    A server on loopback needs no key and is reached without a proxy, whatever the proxy
    variables say.

    Errors of the provider are raised unchanged once all attempts are used:
    `openai.RateLimitError` (429), `openai.InternalServerError` (5xx),
    `openai.APITimeoutError` (silence before the answer), `openai.APIConnectionError`.
    A stream that has begun is not retried.

    Args:
        name: The model's name on the server.

    Raises:
        ModelError: There is no key, and the server is not on loopback; the address is not an http
            or https URL with a host.
    """
    address, loopback = _get_address()
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key and not loopback:
        raise ModelError(
            "model {model!r} needs a key, and {variable} is not set; set {variable}, or leave the "
            "model out to use the offline planner",
            code="model_key_missing",
            model=f"openai:{name}",
            variable=KEY_VARIABLE,
        )
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    from echelons.models.http_clients import AsyncHttpClient, SyncHttpClient

    # On loopback the proxy variables are ignored.
    proxy = None if loopback else os.environ.get(PROXY_VARIABLE, "").strip() or None
    return ChatOpenAI(
        model=name,
        api_key=SecretStr(key or NO_KEY),
        base_url=address,
        max_retries=MAX_RETRIES,
        timeout=TIMEOUT_SECONDS,
        stream_usage=True,
        http_client=SyncHttpClient(trust_env=not loopback, proxy=proxy),
        http_async_client=AsyncHttpClient(trust_env=not loopback, proxy=proxy),
        # LangChain must neither add a proxy of its own nor warn about options it would set.
        openai_proxy=None,
        http_socket_options=(),
    )


def _get_address() -> tuple[str, bool]:
    """Return the address of the server, and whether it is on loopback."""
    for variable in ADDRESS_VARIABLES:
        if value := os.environ.get(variable, "").strip():
            return value, _is_loopback(_parse_host(variable, value))
    return OPENAI_ADDRESS, False


def _parse_host(variable: str, value: str) -> str:
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port  # reading the port validates it
    except ValueError as error:
        raise _invalid_address(variable, value) from error
    if parts.scheme not in ("http", "https") or not host:
        raise _invalid_address(variable, value)
    return host


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _invalid_address(variable: str, value: str) -> ModelError:
    return ModelError(
        "{variable} is {value!r}, which is no address of a model server; give it as "
        "http://HOST:PORT/v1 or https://…, or unset it to use OpenAI's own",
        code="invalid_model_address",
        variable=variable,
        value=value,
    )
