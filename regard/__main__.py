"""The command ``regard``, also ``python -m regard``."""

import os
import sys

# Torch, here and in processes started from here, asks for huge pages for blocks of 2 MB and more:
# training takes about 4 % less time.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def main() -> None:
    """Run the command line; exit with 2 if the laboratory's packages are not installed."""
    try:
        from regard.lab.cli.main import main as run
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
