"""What ``make bench`` starts: puts the repository on the path, then leaves all to ``suite``."""

from __future__ import annotations

import sys
from pathlib import Path

# A script gets its own folder, whose modules would then be importable under bare names.
sys.path[0] = str(Path(__file__).parents[1])

if __name__ == "__main__":
    from benchmarks.suite import main

    main()
