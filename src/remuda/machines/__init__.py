"""Machines that Remuda makes itself: node drivers and their schemas, Jobs that make and remove machines, the program in them.

A driver (:mod:`.driver`) makes machines at one kind of provider; :mod:`.driver_registry` finds drivers by name, ours and those
of other packages. `nodedrivers` makes each driver's kinds, `machineprovision` its Jobs, `runner` runs Jobs without pods,
`provisioner` is the program in a Job; both know a machine by its :mod:`.machine_state`. `secretfields` keeps secret fields out
of objects. Not here: pools and plans (`provisioning`), the Machine itself (`capi/machine`). Read :mod:`.driver`, then
`machineprovision.decide`.
"""
