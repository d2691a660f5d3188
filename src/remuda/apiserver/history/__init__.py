"""Time travel: objects and lists at a past moment, and the life of one object.

`past` answers requests to `/history/…`, `moments` finds the revision that is meant, `past.Rights` the one since which
the caller may see it, `changes` the changes of one step.
Not here: the rows (`storage/sqlite/history`), the user of a write (`storage/store`). Begin with `past`.
"""
