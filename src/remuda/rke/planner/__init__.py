"""What every machine of a cluster should be told next, as a pure function: a :mod:`.snapshot` in, a decision out (capr.md §4).

No module in here does I/O or reads a clock. :mod:`.decide` is the way in; :mod:`.reading` makes its snapshot of objects and
:mod:`.writing` puts its decision into them; :mod:`.render` makes the plans.
"""
