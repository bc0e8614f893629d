"""Measures the team ``research`` on a folder: ``make bench-research DATA=folder ASKED=file``.

The file is a JSON list of questions, each with the ``files`` that answer it and the ``words`` that
must be quoted from one of them; no files, if none answers it. Written before the first answer is
looked at, it tells how often the right document is quoted, at the right line, and how often what
nobody knows is refused.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from echelons import Agent, Session
from echelons.teams.research import team

REPORT = Path(__file__).parents[1] / "docs" / "benchmarks" / "research"
CITED = re.compile(r"((?:^>.*\n)+)— (.+):(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """A question, and what answers it.

    Attributes:
        question: In the words of who asks.
        files: Documents that answer it; empty if none does.
        words: What must stand in the quotation.
    """

    question: str
    files: Sequence[str]
    words: Sequence[str]


@dataclass(frozen=True)
class Answer:
    """What became of a question.

    Attributes:
        possible: Whether a document answers it.
        first: Whether the first quotation is from such a document.
        cited: Whether the words are quoted from it, at the line that is named.
        refused: Whether nothing is quoted.
        agents: How many agents were asked, those of folders included.
        cpu: Seconds of the processor.
    """

    possible: bool
    first: bool
    cited: bool
    refused: bool
    agents: int
    cpu: float


@dataclass(frozen=True)
class Start:
    """A new process that reads the folder and answers one question.

    Attributes:
        seconds: Until it has ended.
        cpu: Seconds of the processor.
        mib: Memory that it took at most.
    """

    seconds: float
    cpu: float
    mib: float


def quotations(text: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield file and quoted text of each quotation that stands in its file at the line named."""
    for quoted, path, line in CITED.findall(text):
        rows = [row.removeprefix(">").removeprefix(" ") for row in quoted.splitlines()]
        lines = (folder / path).read_text("utf-8", "replace").split("\n")
        if rows[0].strip() in lines[int(line) - 1]:  # a very long line is quoted in part
            yield path, "\n".join(rows)


def judged(asked: Question, text: str, folder: Path) -> tuple[bool, bool, bool]:
    """Return of an answer whether its first document is right, its citation, and if it refuses."""
    found = list(quotations(text, folder))
    right = [quoted for path, quoted in found if path in asked.files]
    cited = any(all(word in quoted for word in asked.words) for quoted in right)
    return bool(found) and found[0][0] in asked.files, cited, "\n> " not in f"\n{text}"


def answered(root: Agent, asked: Question, folder: Path, database: Path) -> Answer:
    """Ask a team, on a thread of its own."""
    began = time.process_time()
    with Session(root, database, thread=f"asked-{uuid4()}") as session:
        run = session.send(asked.question)
        agents = {event.path for event in run} - {root.name}
        text = run.result().text
    spent = time.process_time() - began
    first, cited, refused = judged(asked, text, folder)
    return Answer(bool(asked.files), first, cited, refused, len(agents), spent)


def started(folder: Path, question: str, database: Path) -> Start:
    """Start a new process with a question."""
    command = [sys.executable, "-m", "echelons", "run", "research", question]
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*command, "--docs", str(folder), "--db", str(database), "--quiet"],
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(time.monotonic() - began, cpu, after.ru_maxrss / 1024)


def report(answers: Sequence[Answer], start: Start, documents: int) -> str:
    """Write the figures as Markdown."""
    able = [each for each in answers if each.possible]
    unable = [each for each in answers if not each.possible]
    spent = sorted(each.cpu for each in answers)
    rows = {
        "documents read": documents,
        "questions that a document answers": len(able),
        "… whose first quotation is from the right document": sum(e.first for e in able),
        "… answered from it, with the right words and line": sum(e.cited for e in able),
        "… both": sum(e.first and e.cited for e in able),
        "questions that none answers": len(unable),
        "… refused": sum(each.refused for each in unable),
        "agents asked for a question, at most": max(each.agents for each in answers),
        "processor seconds for a question, the median": f"{spent[len(spent) // 2]:.2f}",
        "… at most": f"{spent[-1]:.2f}",
        "seconds from a new process to its answer": f"{start.seconds:.1f}",
        "… of the processor": f"{start.cpu:.1f}",
        "… its memory": f"{start.mib:.0f} MiB",
    }
    lines = [
        "# The research team, measured",
        "",
        "Written by `make bench-research DATA=folder ASKED=file`;",
        "[the command line](../cli.md#the-research-team) says what is measured.",
        "",
        "| measured | |",
        "| --- | ---: |",
        *(f"| {name} | {value} |" for name, value in rows.items()),
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, target: Path = REPORT) -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the folder of documents")
    parser.add_argument("asked", type=Path, help="the file of questions")
    parser.add_argument("--show", action="store_true", help="print what became of each question")
    given = parser.parse_args(arguments)
    read = json.loads(given.asked.read_text(encoding="utf-8"))
    questions = [Question(**each) for each in read]
    with TemporaryDirectory() as kept:
        start = started(given.data, questions[0].question, Path(kept) / "cold.sqlite")
        root = team(given.data)
        answers = []
        for asked in questions:
            answers.append(answered(root, asked, given.data, Path(kept) / "asked.sqlite"))
            if given.show:
                print(answers[-1], asked.question)
    documents = sum(not each.subordinates for each in _every(root))
    text = report(answers, start, documents)
    target.with_suffix(".md").write_text(text, encoding="utf-8")
    data = {"answers": [asdict(each) for each in answers], "start": asdict(start)}
    target.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    print(text)


def _every(agent: Agent) -> Iterator[Agent]:
    yield agent
    for each in agent.subordinates:
        if isinstance(each, Agent):
            yield from _every(each)


if __name__ == "__main__":
    main()
