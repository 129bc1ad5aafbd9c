"""`python -m milepost` is the `milepost` command."""

import sys

from milepost.cli import main

if __name__ == "__main__":
    sys.exit(main())
