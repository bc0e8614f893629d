"""``python -m echelons``: the command line, for a Python whose scripts are not on the path."""

from echelons.cli.app import main

if __name__ == "__main__":
    main()
