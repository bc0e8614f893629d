"""What a provider of hits is, how one is asked over HTTP, and how one becomes a tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol
from urllib.parse import urlencode, urlsplit

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import ValidationError

from echelons.effects.journal import effect
from echelons.errors import ToolRefusal, search_failed
from echelons.teams.search.hits import SearchHit, format_hits, merge_hits
from echelons.teams.search.search_input import SearchInput
from echelons.tools.answers import raise_refusals
from echelons.tools.http_get import FetchPolicy, fetch
from echelons.tools.url_rules import HostRules

USER_AGENT: Final = "echelons-search/0.1"
MOST_BYTES: Final = 5_000_000
"""Most bytes of a provider's response."""
LONGEST_WAIT: Final = 3600.0
"""Most seconds that a provider is left alone because it asks for it."""


class SearchProvider(Protocol):
    """Someone to ask for hits.

    Attributes:
        name: A short name, `"wikipedia"`.
        description: What it knows, for a model.
        address: Where it is asked; two of one name with other addresses share no cache.
        interval: Least seconds between two requests.
        cached: Whether its hits may be cached.
    """

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def address(self) -> str: ...  # noqa: D102
    @property
    def interval(self) -> float: ...  # noqa: D102
    @property
    def cached(self) -> bool: ...  # noqa: D102

    def find_hits(self, query: str, now: float) -> Sequence[SearchHit]:
        """Return the hits for a query, best first; none if it knows nothing.

        Args:
            query: What to search for.
            now: Seconds since 1970, for waits that a provider states as a time.

        Raises:
            ToolRefusal: It cannot be asked, or its answer makes no sense.
        """
        ...


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """A public address that is asked with a GET request.

    Attributes:
        provider: The provider's name, for errors.
        base_url: The address, from code only: the one place that may be connected to.
        timeout: Seconds for a whole request.
        headers: Further headers.
    """

    provider: str
    base_url: str
    timeout: float
    headers: Mapping[str, str]

    def request(self, parameters: Mapping[str, str], now: float) -> bytes:
        """Return the body of a response with status 200.

        Raises:
            ToolRefusal: There is none; `wait` is what the server asks for.
        """
        parts = urlsplit(self.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        # Whoever wrote the address means it, on a private network as well.
        rules = HostRules(allow_private=[f"{host}:{port}"])
        policy = FetchPolicy(
            rules, MOST_BYTES, self.timeout, {"user-agent": USER_AGENT, **self.headers}
        )
        try:
            response = fetch(f"{self.base_url}?{urlencode(parameters)}", policy)
        except ToolRefusal as error:
            raise search_failed(self.provider, str(error)) from error
        if response.status != 200:
            limited = response.status in (403, 429)
            why = "it limits or refuses requests" if limited else "its server does not answer"
            wait = read_wait(response.headers, now)
            raise search_failed(self.provider, f"{why} (status {response.status})", wait)
        return response.content


def read_wait(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds that a server asks to wait, at most `LONGEST_WAIT`; 0 if it does not.

    >>> read_wait({"retry-after": "120"}, now=0)
    120.0
    """
    wait = 0.0
    given = headers.get("retry-after", "").strip()
    try:
        if given.isascii() and given.isdigit():
            wait = float(given[:9])
        elif given:
            wait = parsedate_to_datetime(given).replace(tzinfo=UTC).timestamp() - now
        elif headers.get("x-ratelimit-remaining") == "0":  # GitHub's own headers
            wait = float(headers.get("x-ratelimit-reset", "0")[:15]) - now
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wait, 0.0), LONGEST_WAIT)


def build_provider_tool(provider: SearchProvider, clock: Callable[[], float]) -> BaseTool:
    """Return the tool `search_…` that asks one provider alone."""

    @effect(reads_only=True)
    @raise_refusals
    def search(query: str) -> tuple[str, dict[str, Any]]:
        found = provider.find_hits(query, clock())
        hits = merge_hits([found])
        return format_hits(hits) or f"{provider.name} finds nothing.", build_artifact(hits)

    return build_query_tool(f"search_{provider.name}", provider.description, search)


def build_query_tool(
    name: str, description: str, search: Callable[[str], tuple[str, dict[str, Any]]]
) -> BaseTool:
    """Return a tool that takes a `SearchInput`."""
    return StructuredTool(
        name=name,
        description=description,
        args_schema=SearchInput,
        func=search,
        response_format="content_and_artifact",
        handle_tool_error=True,
        handle_validation_error=_describe_faults,
    )


def build_artifact(hits: Sequence[SearchHit]) -> dict[str, Any]:
    """Return the artifact of an answer: its sources, best first."""
    return {"citations": [{"title": hit.title, "source": hit.source} for hit in hits]}


def _describe_faults(error: Any) -> str:
    faults = error.errors() if isinstance(error, ValidationError) else [{"msg": str(error)}]
    return "; ".join(f"{'.'.join(map(str, each.get('loc', ())))}: {each['msg']}" for each in faults)
