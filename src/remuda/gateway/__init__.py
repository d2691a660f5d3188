"""The one HTTPS door: who comes in, with what, and what is remembered of it.

What a request goes through, in this order: :mod:`.targets` and :mod:`.headers` (is there one way to read it?), :mod:`.throttle`
(not too much of it), :mod:`.credentials` and :mod:`.login` (who is it?), :mod:`.csrf` (is it theirs?), and
at the end :mod:`.audit`. :mod:`.certificates` and, below, :mod:`remuda.management.settings` are what the door itself stands on.
"""
