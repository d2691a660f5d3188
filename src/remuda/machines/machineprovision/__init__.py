"""The machineprovision controller: machines of drivers, made and removed by Jobs (docs/reference/machines.md#create-and-remove).

`machine_inputs` reads, `decide` decides (pure), `job_objects` and `job_arguments` are the Job, `job_outcome` its result,
`machine_status` what the machine says.
Not here: the program in the Job (`..provisioner`), Jobs without pods (`..runner`). Read :mod:`.decide`, then :mod:`.controller`.
"""

from __future__ import annotations
