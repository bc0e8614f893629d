"""What each peer's process starts: puts the repository on the path, leaves all to ``serving``."""

from __future__ import annotations

import sys
from pathlib import Path

# A script gets its own folder, whose modules would hide the frameworks of the same names.
sys.path[0] = str(Path(__file__).parents[2])

if __name__ == "__main__":
    from benchmarks.peers.serving import main

    main()
