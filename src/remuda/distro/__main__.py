"""`python -m remuda.distro` is what `remuda` is on a host of a cluster."""

from __future__ import annotations

import sys

from remuda.cli.distro import main

if __name__ == "__main__":
    sys.exit(main())
