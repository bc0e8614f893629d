"""`ModelDeriver`: derives the capabilities of agents by asking a chat model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from echelons.capabilities.capability import Capability
from echelons.capabilities.derivation_store import Derivation, Kept, NotKept
from echelons.capabilities.deriver import derive
from echelons.capabilities.deriver_prompt import INSTRUCTIONS, Description, described, understood
from echelons.errors import DeriverFailed
from echelons.text.error_lines import describe_failure
from echelons.tree.members import Member
from echelons.tree.walk import walk

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import RunnableConfig

LOG = logging.getLogger(__name__)

AT_ONCE: Final = 8
"""Maximum concurrent requests to the model."""


class ModelDeriver:
    """Derives capabilities by asking a model, once for each agent that declares none.

    Replies are stored for as long as the deriver lives, or in a database (`kept_in`), and asked
    for again when an agent's description, prompt or tools change. If the model fails, an agent's
    capabilities are derived from its names (`derive`), and a warning is logged.

    Args:
        model: A LangChain chat model, or its name, such as `"openai:gpt-5-mini"`.
        kept: The store of derivations; by default they live as long as the deriver.

    Raises:
        UnknownModel: There is no such model.
        ModelKeyMissing: A model given by name needs an API key that the environment lacks.

    Examples:
        >>> from echelons import Agent
        >>> from echelons.capabilities import CapabilityMap
        >>> from echelons.testing import ScriptedModel
        >>> says = '{"capabilities": [{"name": "fine dining", "confidence": 0.8}]}'
        >>> eat = Agent("eat", prompt="You know the best tables of Rome.")
        >>> print(CapabilityMap.discover(eat, ModelDeriver(ScriptedModel([says]))))
        eat: fine dining (0.8, derived)
    """

    def __init__(self, model: BaseChatModel | str, kept: Kept | None = None) -> None:
        from echelons.models import resolve

        self._model = resolve(model)
        self._kept = kept or NotKept()
        self._known: dict[str, Derivation] = {}

    def kept_in(self, kept: Kept) -> ModelDeriver:
        """Return a deriver with the same model and another store."""
        return ModelDeriver(self._model, kept)

    def __call__(self, member: Member, /) -> Mapping[str, Capability]:
        """Return an agent's capabilities, asking the model if they are not known."""
        self.learn(member)
        return self._known[member.name].capabilities

    def learn(self, root: Member) -> None:
        """Derive the capabilities of all agents of a tree that declare none, concurrently.

        Raises:
            StorageError: The store could not be read or written.
        """
        if not (unknown := self._unknown(root)):
            return
        self._known.update(_unchanged(unknown, self._kept.read([*unknown])))
        if asked := self._unknown(root):
            replies = self._model.batch(_questions(asked), self._config(), return_exceptions=True)
            self._kept.write(self._heard(root, asked, replies))

    async def alearn(self, root: Member) -> None:
        """Async version of `learn`."""
        if not (unknown := self._unknown(root)):
            return
        found = await self._kept.arun(lambda: self._kept.read([*unknown]))
        self._known.update(_unchanged(unknown, found))
        if asked := self._unknown(root):
            replies = await self._model.abatch(
                _questions(asked), self._config(), return_exceptions=True
            )
            heard = self._heard(root, asked, replies)
            await self._kept.arun(lambda: self._kept.write(heard))

    def _unknown(self, root: Member) -> dict[str, Description]:
        silent = (each.member for each in walk(root) if not each.member.capabilities)
        about = {member.name: described(member, self._label()) for member in silent}
        return {
            agent: each
            for agent, each in about.items()
            if agent not in self._known or self._known[agent].fingerprint != each.fingerprint
        }

    def _heard(
        self, root: Member, asked: Mapping[str, Description], replies: Sequence[Any]
    ) -> Mapping[str, Derivation]:
        """Add the replies to what is known, and return those that are worth storing."""
        members = {each.member.name: each.member for each in walk(root)}
        said: dict[str, Derivation] = {}
        for about, reply in zip(asked.values(), replies, strict=True):
            try:
                capabilities = _capabilities(about.agent, reply)
            except Exception as error:  # noqa: BLE001 - models raise anything
                why = describe_failure(error, DeriverFailed)
                LOG.warning("%s: its name says what %r can do", why, about.agent)
                words = derive(members[about.agent])
                self._known[about.agent] = Derivation(about.fingerprint, words)
                continue
            said[about.agent] = Derivation(about.fingerprint, capabilities)
        self._known.update(said)
        return said

    def _label(self) -> str:
        named = (getattr(self._model, name, None) for name in ("model_name", "model"))
        return next((name for name in named if isinstance(name, str)), type(self._model).__name__)

    def _config(self) -> RunnableConfig:
        # Without the tag, the model's reply would appear in a run's message stream.
        return {"max_concurrency": AT_ONCE, "tags": ["nostream"]}


def _questions(asked: Mapping[str, Description]) -> list[Any]:
    return [[("system", INSTRUCTIONS), ("user", about.text)] for about in asked.values()]


def _capabilities(agent: str, reply: Any) -> Mapping[str, Capability]:
    if isinstance(reply, BaseException):
        raise reply
    return understood(agent, reply.text)


def _unchanged(
    asked: Mapping[str, Description], kept: Mapping[str, Derivation]
) -> Mapping[str, Derivation]:
    return {
        agent: found
        for agent, found in kept.items()
        if agent in asked and found.fingerprint == asked[agent].fingerprint
    }
