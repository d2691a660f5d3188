"""The composition root: which parts and controllers run in `remuda serve`, `remuda controllers` and `remuda gateway`, and in
a rehearsal.

:mod:`.controllers` is the table of controllers and of the programs that run them, :mod:`.parts` has what they need;
:mod:`.admission` is the table of rules. :mod:`.manifests` is what `remuda manifests` prints. Not here: the logic of any
controller. Only `cli` imports this room.
Read :mod:`.controllers`, then :mod:`.embedded` (`remuda serve`) and :mod:`.attached` (`remuda controllers`).
"""
