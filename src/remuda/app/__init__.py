"""The composition root: which parts and controllers run in `serve`, `controllers` and `gateway`, on a host of the
distribution, and in a rehearsal.

No logic of a controller lives here, and nothing below imports it.
:mod:`.controllers` is the table: every controller, its module, and the programs that start it.
Read it first, then :mod:`.embedded` (`remuda serve`) or :mod:`.attached` (`remuda controllers`).
"""
