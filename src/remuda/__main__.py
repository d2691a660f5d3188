"""`python -m remuda` is the remuda command."""

from __future__ import annotations

from remuda.cli import main

if __name__ == "__main__":
    main()
