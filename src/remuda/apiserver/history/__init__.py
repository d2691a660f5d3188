"""Time travel: objects and lists at a past moment, and the life of one object.

`history_handler` answers requests to `/history/…`, `point_in_time` finds the revision that is meant, `history_handler.Rights` the
one since which the caller may see it, `object_changes` the changes of one step.
Not here: the rows (`storage/sqlite/history`), the user of a write (`storage/store`). Begin with `history_handler`.
"""
