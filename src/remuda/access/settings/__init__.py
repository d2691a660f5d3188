"""Settings and features: their names, defaults, rules and the values in force.

`settings` has the tables of settings and of feature switches, `validation` the rules for values.
`controller` keeps a Setting and a Feature object for each.
Not here: where a setting is used.
Read :mod:`.settings` first.
"""
