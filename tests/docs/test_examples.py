"""Every example that a reader may copy runs: docstrings, the README and docs/.

A document's examples share one namespace, in order, as a reader would type them, and run in an
empty folder. ``<!--- skip: next -->`` before a block says that it cannot run here. A comment that
follows a ``print``, on its line or the next ones, is what it prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from doctest import ELLIPSIS
from io import StringIO
from pathlib import Path
from unittest import SkipTest

import pytest
from sybil import Document, Example, Sybil
from sybil.document import PythonDocStringDocument
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.doctest import DocTestParser
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT = Path(__file__).parents[2]
PRINTED = re.compile(r"^ *print\(.*\)(?:  # .+)?$((?:\n *# .+)*)", re.MULTILINE)


class OutputEvaluator(PythonEvaluator):
    """Runs a block, and looks for the output that its comments say in what it prints."""

    def __call__(self, example: Example) -> None:
        with redirect_stdout(StringIO()) as output:
            super().__call__(example)
        printed = iter(output.getvalue().splitlines())
        for line in list_output(str(example.parsed)):
            assert line in printed, f"{line!r} is not printed there, but\n{output.getvalue()}"


def list_output(source: str) -> Iterator[str]:
    """Yield the lines that a block says it prints."""
    for found in PRINTED.finditer(source):
        for comment in re.finditer(r"(?:^ *|  )# (.+)$", found.group(), re.MULTILINE):
            yield comment.group(1)


PROSE = Sybil([CodeBlockParser("python", OutputEvaluator()), SkipParser()], path=str(ROOT))
DOCSTRINGS = Sybil(
    [DocTestParser(ELLIPSIS)], path=str(ROOT), document_types={".py": PythonDocStringDocument}
)


def sources() -> list[Path]:
    """Return the modules under their import names: a walk does not enter a linked folder."""
    folders = [ROOT / "echelons" / name for name in ("", "graphs", "nodes", "checkpoints")]
    return sorted({source for folder in folders for source in folder.rglob("*.py")})


def documents() -> list[Document]:
    prose = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    parsed = [PROSE.parse(path) for path in prose]
    parsed += [DOCSTRINGS.parse(each) for each in sources() if ">>>" in each.read_text("utf-8")]
    return [document for document in parsed if document.regions]


def name(document: Document) -> str:
    return Path(document.path).relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", documents(), ids=name)
def test_every_example_runs_and_prints_what_it_says(
    document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for example in document.examples():
        try:
            example.evaluate()
        except SkipTest:
            continue


def test_the_examples_of_the_readme_run_again_in_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        for example in PROSE.parse(ROOT / "README.md").examples():
            example.evaluate()


@pytest.mark.parametrize("folder", ["graphs", "nodes", "checkpoints"])
def test_the_examples_of_a_linked_folder_are_looked_for(folder: str) -> None:
    assert ROOT / "echelons" / folder / "__init__.py" in sources()
