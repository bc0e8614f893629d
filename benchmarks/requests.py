"""The requests that routing is measured with: read, drawn and made to trees of agents.

The folder has ``domains.json``, superiors with the names of their subordinates, and
``train_val.json``, pairs of a text and the agent it is for under ``train`` and ``val``, and texts
for nobody under ``oos_train`` and ``oos_val``. Nothing of ``val`` ever reaches an agent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from echelons import Agent
from echelons.capabilities import Capability

Texts = Sequence[tuple[str, str]]
Examples = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Requests:
    """All that is known.

    Attributes:
        domains: The names of the subordinates, by their superior's.
        train: Texts with their agents, to learn from and to choose a threshold with.
        val: The same, to measure with.
        nobody_train: Texts for nobody, to choose a threshold with.
        nobody_val: The same, to measure with.
    """

    domains: Mapping[str, Sequence[str]]
    train: Texts
    val: Texts
    nobody_train: Sequence[str]
    nobody_val: Sequence[str]

    @classmethod
    def read(cls, folder: Path) -> Requests:
        """Read the two files of a folder."""
        domains = json.loads((folder / "domains.json").read_text(encoding="utf-8"))
        splits = json.loads((folder / "train_val.json").read_text(encoding="utf-8"))
        pairs = {name: [(text, agent) for text, agent in each] for name, each in splits.items()}
        nobody = {name: [text for text, _ in pairs[name]] for name in ("oos_train", "oos_val")}
        return cls(domains, pairs["train"], pairs["val"], nobody["oos_train"], nobody["oos_val"])

    def draw(self, number: int, seed: int, held_out: int = 20) -> tuple[Examples, Texts]:
        """Draw example tasks of each agent, and as many others to choose a threshold with.

        Args:
            number: Examples of each agent.
            seed: Which draw.
            held_out: Texts of each agent, none of them an example; fewer if there are fewer.
        """
        chance = random.Random(seed)
        by_agent: dict[str, list[str]] = {}
        for text, agent in self.train:
            by_agent.setdefault(agent, []).append(text)
        examples: dict[str, Sequence[str]] = {}
        others: list[tuple[str, str]] = []
        for agent, texts in by_agent.items():
            mixed = chance.sample(texts, len(texts))
            examples[agent] = mixed[:number]
            others += [(text, agent) for text in mixed[number:][:held_out]]
        return examples, others

    def tree(self, examples: Examples) -> Agent:
        """Make the tree: an agent declares its name with its examples, or without any nothing."""
        return Agent(
            "assistant",
            subordinates=[
                Agent(domain, subordinates=[_agent(name, examples.get(name, ())) for name in names])
                for domain, names in self.domains.items()
            ],
        )


def _agent(name: str, examples: Sequence[str]) -> Agent:
    if not examples:
        return Agent(name)
    return Agent(name, capabilities={name.replace("_", " "): Capability(1.0, examples)})
