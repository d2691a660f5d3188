"""The local job runner: Jobs of machines as supervised processes of this server, where there are no pods (`--job-runner=local`).

:mod:`.controller` decides which Jobs run and writes down how they went; :mod:`.confinement` says what a process may use,
:mod:`.jail` makes it so, :mod:`.process` looks after it.
"""

from __future__ import annotations
