"""A drawing shows the tree as it is, whatever its descriptions hold.

That Mermaid itself reads the labels as these tests do was tried with Mermaid 10 and 11 in a
browser: each of ``NASTY``, and 250 random texts, came out as it went in.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelons import Agent
from echelons.tree.agent_registry import MAX_LABEL_LENGTH, draw_guides

NODE = re.compile(r'    (agent\d+)\["<b>([A-Za-z][A-Za-z0-9_-]*)</b>(?:<br/>([^"]+))?"\]')
EDGE = re.compile(r"    (agent\d+) --> (agent\d+)")
WORD_JOINER = "\u2060"

NASTY = [
    'say "hello"',
    "`code` ```block```",
    '"`markdown *strings*`"',
    "[x](y) {a} (b) ]]> [/z/] {{q}}",
    "*bold* _it_ **b** __c__ ~~s~~ # h",
    "1. first",
    "- item",
    "<script>alert(1)</script> <img src=x onerror=alert(1)>",
    "<br/>",
    "a\nb\r\n\tc",
    "日本語 émoji 🎉 עברית",
    "#quot; #35; #1; &amp; &lt;",
    '%%{init: {"theme":"dark"}}%% %% comment',
    "$$x^2$$ costs $5",
    "fa:fa-car and fab:fa-twitter",
    "style a fill:#f00; classDef x fill:#0f0;",
    "end subgraph graph click",
    "back\\slash \\n newline",
    "A --- B",
    "a|b --> c",
    "https://example.com/x?y=1#z",
    "---\ntitle: x\n---",
    ":::cls @{ shape: x }",
    "\x1b[31mred\x00",
    "\u202eright to left",
]


def line(levels: int) -> Agent:
    """Return a tree of so many levels, one agent on each."""
    agent = Agent(f"level-{levels}", f"Level {levels}")
    for level in range(levels - 1, 0, -1):
        agent = Agent(f"level-{level}", f"Level {level}", subordinates=[agent])
    return agent


def team(description: str = "") -> Agent:
    """Return a tree of three levels, every agent described alike."""
    leaves = [Agent(name, description) for name in ("eat", "tours")]
    return Agent(
        "head",
        description,
        subordinates=[
            Agent("flights", description),
            Agent("days", description, subordinates=leaves),
            Agent("hotels", description),
        ],
    )


def shown(label: str) -> str:
    """Read a label as Mermaid does."""
    decoded = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label)
    return decoded.replace(WORD_JOINER, "")


def on_one_line(text: str) -> str:
    """Return a description as a drawing shows it."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def read(mermaid: str) -> tuple[dict[str, tuple[str, str]], list[tuple[str, str]]]:
    """Read a drawing back: names and labels by id, and the edges between ids."""
    nodes: dict[str, tuple[str, str]] = {}
    edges: list[tuple[str, str]] = []
    head, *lines = mermaid.split("\n")
    assert head == "flowchart TD"
    for each in lines:
        if node := NODE.fullmatch(each):
            assert node[1] not in nodes, "an id is used twice"
            nodes[node[1]] = (node[2], node[3] or "")
        else:
            edge = EDGE.fullmatch(each)
            assert edge, each
            edges.append((edge[1], edge[2]))
    return nodes, edges


def test_the_text_is_a_tree_of_names_and_descriptions() -> None:
    assert team("Works").draw().text == (
        "head: Works\n"
        "├── flights: Works\n"
        "├── days: Works\n"
        "│   ├── eat: Works\n"
        "│   └── tours: Works\n"
        "└── hotels: Works"
    )


def test_an_agent_without_a_description_is_drawn_by_its_name() -> None:
    assert Agent("head").draw().text == "head"
    assert Agent("head").draw().mermaid == 'flowchart TD\n    agent0["<b>head</b>"]'


@pytest.mark.parametrize("levels", [1, 5, 32])
def test_a_tree_of_any_depth_is_drawn_whole(levels: int) -> None:
    drawing = line(levels).draw()

    lines = drawing.text.split("\n")
    assert len(lines) == levels
    for depth, each in enumerate(lines):
        indent = "    " * (depth - 1) + "└── " if depth else ""
        assert each == f"{indent}level-{depth + 1}: Level {depth + 1}"
    nodes, edges = read(drawing.mermaid)
    assert [name for name, _ in nodes.values()] == [f"level-{n + 1}" for n in range(levels)]
    assert edges == [(f"agent{n}", f"agent{n + 1}") for n in range(levels - 1)]


def test_every_subordinate_hangs_below_its_own_superior() -> None:
    nodes, edges = read(team().draw().mermaid)

    names = {node: name for node, (name, _) in nodes.items()}
    assert sorted((names[above], names[below]) for above, below in edges) == [
        ("days", "eat"),
        ("days", "tours"),
        ("head", "days"),
        ("head", "flights"),
        ("head", "hotels"),
    ]


def test_names_that_mermaid_has_for_itself_are_drawn_like_any_other() -> None:
    keywords = ["graph", "subgraph", "style", "click", "class", "end", "o", "x"]
    nodes, _ = read(Agent("head", subordinates=[Agent(each) for each in keywords]).draw().mermaid)

    assert [name for name, _ in nodes.values()] == ["head", *keywords]


@pytest.mark.parametrize("description", NASTY)
def test_a_label_shows_the_description_and_no_markup(description: str) -> None:
    nodes, _ = read(team(description).draw().mermaid)

    assert len(nodes) == 6
    for _, label in nodes.values():
        assert shown(label) == on_one_line(description)


@given(st.text(max_size=200) | st.text(st.sampled_from('$\\n%{}#;:&fa"`<>*_|-[] '), max_size=90))
def test_no_description_brings_anything_that_mermaid_would_read(description: str) -> None:
    nodes, _ = read(Agent("head", description).draw().mermaid)

    label = nodes["agent0"][1]
    bare = re.sub(r"#\d+;", "", label)
    assert not set(bare) & set('!"#$%&*+/:;<=>?@[\\]^_`{|}~\n')
    decoded = re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label)
    assert not re.search(r"\$\$|\\n|fa\w?:fa", decoded)
    assert len(decoded.replace(WORD_JOINER, "")) <= MAX_LABEL_LENGTH


def test_a_long_description_is_cut_in_the_diagram_and_whole_in_the_text() -> None:
    long = "<" * (MAX_LABEL_LENGTH + 1)
    drawing = Agent("head", long).draw()

    nodes, _ = read(drawing.mermaid)
    assert shown(nodes["agent0"][1]) == "<" * (MAX_LABEL_LENGTH - 1) + "…"
    assert drawing.text == f"head: {long}"
    exact, _ = read(Agent("head", "<" * MAX_LABEL_LENGTH).draw().mermaid)
    assert shown(exact["agent0"][1]) == "<" * MAX_LABEL_LENGTH


@pytest.mark.parametrize("description", NASTY)
def test_the_text_has_one_printable_line_for_an_agent(description: str) -> None:
    lines = team(description).draw().text.split("\n")

    assert len(lines) == 6
    assert all(each.isprintable() for each in lines)
    assert lines[0] == f"head: {on_one_line(description)}"


def test_a_notebook_shows_the_diagram_and_a_prompt_the_text() -> None:
    drawing = team("Works").draw()

    assert drawing._repr_markdown_() == f"```mermaid\n{drawing.mermaid}\n```"
    assert str(drawing) == repr(drawing) == drawing.text


def test_guides_are_drawn_to_the_last_of_each_level() -> None:
    paths = ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/e", "a/f", "a/f/g"]

    assert draw_guides([path.count("/") for path in paths]) == [
        "",
        "├── ",
        "│   ├── ",
        "│   │   └── ",
        "│   └── ",
        "└── ",
        "    └── ",
    ]
