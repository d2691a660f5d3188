"""What hosts, the cluster itself and buckets say about snapshots, in one form (docs/reference/operations.md#inventory). Pure.

All of it may be wrong or hostile: sizes are limited, unreadable lines are left out, and a report that was cut off is incomplete,
so that nothing disappears by it. :mod:`.inventory` makes ETCDSnapshots of it.
"""

from __future__ import annotations

from typing import Final

# The periodic instruction by which hosts print their files.
INSTRUCTION: Final = "snapshots"
