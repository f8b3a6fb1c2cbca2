"""``python -m allotment``: the command line."""

from allotment.cli import main

if __name__ == "__main__":
    main()
