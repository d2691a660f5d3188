"""The machineprovision controller: machines of drivers, made and removed by Jobs (protocols.md §7, capr.md §2.9)."""

from __future__ import annotations
