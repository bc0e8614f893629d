"""All that remains of the tests passes without a feature; what cannot be removed is listed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deletion import CORE, FEATURES, PROJECT, copy_project, remove_feature
from tests.feature_tests import FeatureTests
from tests.proof import WHOLE

REMAINING = ("tests/nodes", "tests/graphs", "tests/scenarios")
"""What is run: the tests of the loop, and those of whole trees."""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a copy of the project, with a sample of each long proof."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    environment.pop("ECHELONS_PROOF", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def list_test_files(folder: Path) -> Iterator[Path]:
    """Yield the modules of the tests that remain in a copy of the project."""
    for name in REMAINING:
        yield from sorted((folder / name).rglob("test_*.py"))


@pytest.mark.skipif(not WHOLE, reason="make proof PART=deletion")
@pytest.mark.parametrize("feature", [name for name in FEATURES if name not in CORE])
def test_remaining_tests_pass_without(
    feature: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_project(tmp_path)
    concerned = FeatureTests(tmp_path, feature)
    counts = [concerned.remove_from(path) for path in list_test_files(tmp_path)]
    remove_feature(tmp_path, feature)
    # A module that imports the feature is of its tests, too.
    collected = run_pytest(tmp_path, "--collect-only", *REMAINING)
    broken = sorted(set(re.findall(r"^ERROR (tests/\S+\.py)", collected.stdout, re.MULTILINE)))
    for name in broken:
        (tmp_path / name).unlink()

    run = run_pytest(tmp_path, "-n", "auto", "--dist", "loadfile", *REMAINING)

    removed, total = map(sum, zip(*counts, strict=True))
    with capsys.disabled():
        print(
            f"\n{feature}: {run.stdout.splitlines()[-1]}; left out {removed} of {total} test "
            f"functions, and {len(broken)} modules: {', '.join(broken) or 'none'}"
        )
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr


def test_page_lists_what_cannot_be_removed() -> None:
    page = (PROJECT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Features that are core")[2].partition("\n## ")[0]

    listed = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)

    assert dict(listed) == CORE
