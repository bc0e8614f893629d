"""The words of names and prose: plain standard English, nouns for things."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.gates.figures import check_gate
from tests.gates.sources import ROOT, Source, sources, split_words

ODD_IN_NAMES = {
    *("each", "found", "given", "own", "known", "said", "asked", "above", "most", "able", "told"),
    *("nobody", "somebody", "whoever", "who"),
}
"""Words that do not say what a variable is, as the noun does: `message`, `record`, `limit`."""
ODD_IN_PROSE = re.compile(
    r"\b(?i:nobody|somebody|anybody|everybody|whoever|whomever|whom|told|tells)\b"
    # A sentence whose subject is a clause: "Who was dismissed begins nothing".
    r"|(?:^|[.:;] )(?:Who|What|Where)\b(?![^.]*\?)",
    re.MULTILINE,
)


def list_variables(source: Source) -> Iterator[str]:
    """Yield the parameters and locals of each function, each once."""
    for function in source.functions:
        arguments = [node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)]
        stored = (
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
        yield from {*arguments, *stored}


def test_odd_words_in_names() -> None:
    names = [name for source in sources() for name in list_variables(source)]
    odd = Counter(name for name in names if ODD_IN_NAMES.intersection(split_words(name)))

    share = round(100 * odd.total() / len(names), 1)
    check_gate("odd words in names, %", share, odd.most_common(30))


def test_odd_words_in_prose() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    # The page of prompts shows what models read, which is not changed for its style.
    texts = [page.read_text(encoding="utf-8") for page in pages if page.name != "prompts.md"]
    texts += [text for source in sources() for text in source.prose]
    odd = Counter(
        match.strip(".:; \n").lower() for text in texts for match in ODD_IN_PROSE.findall(text)
    )
    words = sum(len(text.split()) for text in texts)

    share = round(1000 * odd.total() / words, 2)
    check_gate("odd words in 1,000 words of prose", share, odd.most_common())
