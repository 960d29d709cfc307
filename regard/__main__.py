"""The command ``regard``, also ``python -m regard``."""

import sys


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
