"""The composition root: which parts and controllers run in `remuda serve`, `remuda controllers` and `remuda gateway`, and in
a rehearsal.

The tables of controllers, with the class and needs of each, are :mod:`.capi_controllers`, :mod:`.access_controllers`,
:mod:`.role_controllers`, :mod:`.health_controllers`, :mod:`.provisioning_controllers` and :mod:`.machine_controllers`;
:mod:`.admission` is the table of rules. No logic of a controller lives here, and only `cli` imports it.
Read :mod:`.embedded` (`remuda serve`) first, then :mod:`.attached` (`remuda controllers`).
"""
