"""The local job runner: Jobs of machines as supervised processes of this server, where there are no pods (`--job-runner=local`).

:mod:`.controller` decides which Jobs run and records their results; :mod:`.confinement` defines what a process may use,
:mod:`.jail` enforces it, :mod:`.process` supervises it. Not here: the Job's content (`..machineprovision`), the program
(`..provisioner`). Read :mod:`.controller` first.
"""

from __future__ import annotations
