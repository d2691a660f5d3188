"""The program in a Job: `remuda provision create|rm`, called as rancher-machine is.

`arguments` reads the command line, `program` acts, `session` makes and removes; `state_store` keeps their state;
`external_driver` runs rancher-machine. It is in the image of machine Jobs, so it imports no runtime and no API server.
Not here: the Job (`machineprovision`), the drivers, the form of the state (`..machine_state`). Read :mod:`.session` first.
"""

from __future__ import annotations
