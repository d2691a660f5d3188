"""Watches and selections: matching of objects, delivery of changes to watchers, and lists of which the caller
may see a part.

`watchers` delivers changes, `selection` matches labels and fields, `filtered_list` restricts both to what RBAC allows by name.
Not here: the verb (`verbs/watch`), the bytes (`http/watch_stream`), the source of changes (`cache/`). Begin with `watchers`.
"""
