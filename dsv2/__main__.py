"""``python -m dsv2``: the command line."""

from dsv2.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
