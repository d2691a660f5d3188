"""Watches and selections: which objects a list or watch is about, who is told of which change, and lists of which the caller
may see a part.

`watchers` fans a change out, `selection` matches labels and fields, `filtered_list` restricts both to what RBAC allows by name.
Where a watch begins is `verbs/watch`, its bytes are `http/watch_stream`, the changes come from `cache/`. Begin with `watchers`.
"""
