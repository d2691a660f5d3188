"""Settings and features: their names, defaults, rules and the values in force.

`settings` is the table of settings, `features` that of feature switches, `validation` what a value may be.
`controller` keeps a Setting and a Feature object for each.
Not here: where a setting is used.
Read :mod:`.settings` first.
"""
