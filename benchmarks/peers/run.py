"""What ``make bench-peers`` starts: puts the repository on the path, leaves all to ``suite``."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])

if __name__ == "__main__":
    from benchmarks.peers.suite import main

    main()
