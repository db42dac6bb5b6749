"""`python -m berth` is `berth`."""

import sys

from berth.cli import main

if __name__ == "__main__":
    sys.exit(main())
