"""`ModelDeriver`: derives the capabilities of agents by asking a chat model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from echelons.capabilities.capability import Capability
from echelons.capabilities.derivation_store import Derivation, DerivationStore, NoDerivationStore
from echelons.capabilities.deriver import derive_from_names
from echelons.capabilities.deriver_prompt import (
    INSTRUCTIONS,
    AgentDescription,
    describe_agent,
    parse_capabilities,
)
from echelons.plans import Plan, arun_plan_steps, run_plan_steps
from echelons.text.error_lines import describe_failure
from echelons.tree.members import Member, walk_tree

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

LOG = logging.getLogger(__name__)

MAX_CONCURRENCY: Final = 8
"""Maximum concurrent requests to the model."""


class ModelDeriver:
    """Derives capabilities by asking a model, once for each agent that declares none.

    Replies are stored for as long as the deriver lives, or in a database (`with_store`), and asked
    for again when an agent's description, prompt or tools change. If the model fails, an agent's
    capabilities are derived from its names (`derive_from_names`), and a warning is logged.

    Args:
        model: A LangChain chat model, or its name, such as `"openai:gpt-5-mini"`.
        store: The store of derivations; by default they live as long as the deriver.

    Raises:
        ModelError: A model given by name is unknown, or has no API key.

    Examples:
        >>> from echelons import Agent
        >>> from echelons.capabilities import CapabilityMap
        >>> from echelons.testing import ScriptedModel
        >>> says = '{"capabilities": [{"name": "fine dining", "confidence": 0.8}]}'
        >>> eat = Agent("eat", prompt="You know the best tables of Rome.")
        >>> print(CapabilityMap.discover(eat, ModelDeriver(ScriptedModel([says]))))
        eat: fine dining (0.8, derived)
    """

    def __init__(self, model: BaseChatModel | str, store: DerivationStore | None = None) -> None:
        from echelons.models import resolve_model

        self._model = resolve_model(model)
        self._store = store or NoDerivationStore()
        self._known: dict[str, Derivation] = {}

    def with_store(self, store: DerivationStore) -> ModelDeriver:
        """Return a deriver with the same model and another store."""
        return ModelDeriver(self._model, store)

    def __call__(self, member: Member, /) -> Mapping[str, Capability]:
        """Return an agent's capabilities, asking the model if they are not known."""
        self.learn(member)
        return self._known[member.name].capabilities

    def learn(self, root: Member) -> None:
        """Derive the capabilities of all agents of a tree that declare none, concurrently."""
        if not (unknown := self._describe_unknown(root)):
            return
        self._known.update(_select_unchanged(unknown, self._store.read([*unknown])))
        if asked := self._describe_unknown(root):
            replies = run_plan_steps(self._ask(asked))
            self._store.write(self._take_replies(root, asked, replies))

    async def alearn(self, root: Member) -> None:
        """Async version of `learn`."""
        if not (unknown := self._describe_unknown(root)):
            return
        found = await self._store.arun(lambda: self._store.read([*unknown]))
        self._known.update(_select_unchanged(unknown, found))
        if asked := self._describe_unknown(root):
            replies = await arun_plan_steps(self._ask(asked))
            heard = self._take_replies(root, asked, replies)
            await self._store.arun(lambda: self._store.write(heard))

    def _describe_unknown(self, root: Member) -> dict[str, AgentDescription]:
        named = (getattr(self._model, name, None) for name in ("model_name", "model"))
        strings = (name for name in named if isinstance(name, str))
        model = next(strings, type(self._model).__name__)
        silent = (each.member for each in walk_tree(root) if not each.member.capabilities)
        about = {member.name: describe_agent(member, model) for member in silent}
        return {
            agent: each
            for agent, each in about.items()
            if agent not in self._known or self._known[agent].fingerprint != each.fingerprint
        }

    def _take_replies(
        self, root: Member, asked: Mapping[str, AgentDescription], replies: Sequence[Any]
    ) -> Mapping[str, Derivation]:
        """Add the replies to what is known, and return those that are worth storing."""
        members = {each.member.name: each.member for each in walk_tree(root)}
        said: dict[str, Derivation] = {}
        for about, reply in zip(asked.values(), replies, strict=True):
            try:
                capabilities = _read_reply(about.agent, reply)
            except Exception as error:  # noqa: BLE001 - models raise anything
                why = describe_failure(error, "deriver_failed")
                LOG.warning("%s: its name says what %r can do", why, about.agent)
                words = derive_from_names(members[about.agent])
                self._known[about.agent] = Derivation(about.fingerprint, words)
                continue
            said[about.agent] = Derivation(about.fingerprint, capabilities)
        self._known.update(said)
        return said

    def _ask(self, asked: Mapping[str, AgentDescription]) -> Plan[list[Any]]:
        """Return the reply about each agent, or the error of its call."""
        from echelons.models.door.ask import ask_all, ask_quietly

        questions = [ask_quietly(self._model, INSTRUCTIONS, about.text) for about in asked.values()]
        return (yield from ask_all(questions, MAX_CONCURRENCY))


def _read_reply(agent: str, reply: Any) -> Mapping[str, Capability]:
    if isinstance(reply, BaseException):
        raise reply
    return parse_capabilities(agent, reply.text)


def _select_unchanged(
    asked: Mapping[str, AgentDescription], kept: Mapping[str, Derivation]
) -> Mapping[str, Derivation]:
    return {
        agent: found
        for agent, found in kept.items()
        if agent in asked and found.fingerprint == asked[agent].fingerprint
    }
