"""What ``make bench-routing DATA=folder`` starts: puts the repository on the path, then runs."""

from __future__ import annotations

import sys
from pathlib import Path

# A script gets its own folder, whose modules would then be importable under bare names.
sys.path[0] = str(Path(__file__).parents[1])

if __name__ == "__main__":
    from benchmarks.routing import main

    main()
