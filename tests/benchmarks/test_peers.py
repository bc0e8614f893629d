"""Peers are installed, told what to do, and believed only when they have done all of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measure import Cost, Say
from benchmarks.peers import compare as comparing
from benchmarks.peers import environments, serving, suite
from benchmarks.peers.compare import Result, Scale, compare
from benchmarks.peers.entries import ENTRIES, HANDWRITTEN, OWN, OWN_FULL, Entry
from benchmarks.peers.environments import PINS, NotInstallable, interpreter
from benchmarks.peers.page import as_json, as_markdown
from benchmarks.peers.process import PeerFailed, started
from benchmarks.peers.work import CHAIN, CROWD, THREAD, TYPED, Size

SMALL = Size(crowd=2, latency=0.001)
TINY = Scale(rounds=1, crowded=1, turns=(1, 2), size=SMALL)


def ignore(what: str) -> None:
    """Hear what is being done."""


def test_ours_and_the_hand_written_tree_do_all_works_beside_one_that_cannot_start() -> None:
    broken = replace(OWN, module="nobody", setting="broken")
    ours, theirs, by_hand = compare([OWN, broken, HANDWRITTEN], TINY, ignore)

    assert theirs.chain is None
    # It is reported with its last word.
    assert theirs.wrong[CHAIN].startswith("cannot start: ModuleNotFoundError")
    assert "cannot start" in as_markdown([ours, theirs], TINY, {})
    results = [ours, by_hand]
    assert [each.wrong for each in results] == [{}, {}]
    for each in results:
        assert each.chain is not None
        assert each.crowd is not None
        assert each.crowd.wall > 3 * SMALL.latency * 1e3
        assert each.turns.keys() == each.sizes.keys() == {1, 2}
        assert each.leaf is True
        assert "langgraph" in each.versions


def test_a_peer_that_does_not_know_a_work_says_so_and_goes_on() -> None:
    with started(OWN, SMALL) as peer:
        with pytest.raises(PeerFailed, match="KeyError"):
            peer.do("nothing", 0)
        assert peer.do(CHAIN, 0).turns == 6


def test_a_work_that_was_cut_short_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    # The peer is started with another crowd than the one whose model turns are counted.
    monkeypatch.setattr(comparing, "started", lambda entry, size: started(entry, SMALL))
    (result,) = compare([OWN], replace(TINY, size=replace(SMALL, crowd=3)), ignore)
    assert result.crowd is None
    assert result.wrong == {CROWD: "incomplete: 4 of 5 model turns were made"}


def test_an_environment_that_cannot_be_made_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = tmp_path / "pins"
    pins.mkdir()
    (pins / "nobody.txt").write_text("not a requirement at all\n", encoding="utf-8")
    monkeypatch.setattr(environments, "PINS", pins)
    with pytest.raises(NotInstallable):
        interpreter("nobody", tmp_path / "peers")
    assert list((tmp_path / "peers").iterdir()) == []


def test_an_environment_is_made_once_and_anew_when_its_pins_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[str] = []

    def install(place: Path, pins: Path) -> None:
        place.mkdir()
        installed.append(pins.read_text(encoding="utf-8"))

    (tmp_path / "nothing.txt").write_text("# no packages\n", encoding="utf-8")
    monkeypatch.setattr(environments, "PINS", tmp_path)
    python = interpreter("nothing", tmp_path / "peers", install)
    assert interpreter("nothing", tmp_path / "peers", install) == python
    assert installed == ["# no packages\n"]
    mark = python.parents[1] / "mark"
    mark.touch()
    (tmp_path / "nothing.txt").write_text("# still none\n", encoding="utf-8")
    assert interpreter("nothing", tmp_path / "peers", install) == python
    assert installed == ["# no packages\n", "# still none\n"]
    assert not mark.exists()


def test_every_entry_has_its_module_and_its_environment_exact_pins() -> None:
    folder = Path(suite.__file__).parent
    for entry in ENTRIES:
        assert (folder / f"{entry.module}.py").exists()
        if entry.environment:
            pins = (PINS / f"{entry.environment}.txt").read_text(encoding="utf-8").split()
            assert pins
            assert all("==" in pin for pin in pins)
    assert len({entry.key for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
def test_what_the_leaf_said_is_found_in_base64_too(tmp_path: Path, before: str) -> None:
    said = base64.b64encode(f"{before}found Rome, and more".encode())
    (tmp_path / "kept.sqlite").write_bytes(b"rows " + said)
    assert serving.keeps_the_leaf(tmp_path)
    (tmp_path / "kept.sqlite").write_bytes(base64.b64encode(b"found Paris"))
    assert not serving.keeps_the_leaf(tmp_path)


def test_the_page_sets_ours_beside_the_others() -> None:
    results = [
        Result(OWN, chain=Cost(10, 10), crowd=Cost(1, 300), leaf=True, typed=Cost(11, 12)),
        Result(OWN_FULL, chain=Cost(20, 30), wrong={TYPED: "incomplete: 4 of 5"}),
        Result(HANDWRITTEN, chain=Cost(40, 50), wrong={CROWD: "incomplete", THREAD: "none"}),
    ]
    page = as_markdown(results, Scale(turns=(1,)), {"cores": "2"})
    assert "| hand-written LangGraph | as it comes | 40 | 50 |" in page
    assert "| echelons | NORMAL | 2 | 300 | 1 |" in page
    assert "| hand-written LangGraph | as it comes | incomplete |" in page
    # Those that were not asked for it are not in the table of the typed chain.
    typed = page.partition("## Three-level chain, typed")[2].partition("\n## ")[0]
    assert "| echelons | NORMAL | 11 | 12 |" in typed
    assert "| echelons | FULL | incomplete: 4 of 5 |" in typed
    assert "hand-written" not in typed
    assert json.loads(as_json(results, Scale(), {}))["figures"][0]["chain"]["cpu"] == 10


def test_figures_are_saved_only_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(entries: Sequence[Entry], scale: Scale, say: Say) -> list[Result]:
        return [Result(each, chain=Cost(scale.rounds, 1)) for each in entries]

    monkeypatch.setattr(suite, "ENTRIES", (OWN, HANDWRITTEN))
    monkeypatch.setattr(suite, "compare", compared)
    kept = tmp_path / "figures"
    suite.main(["--only", "echelons", "--json"], TINY, kept)
    assert not kept.exists()
    assert len(json.loads(capsys.readouterr().out)["figures"]) == 1
    suite.main(["--rounds", "2", "--save"], TINY, kept)
    assert len(json.loads((kept / "peers.json").read_text(encoding="utf-8"))["figures"]) == 2
    assert "`make bench-peers`, 2 rounds" in (kept / "peers.md").read_text(encoding="utf-8")
