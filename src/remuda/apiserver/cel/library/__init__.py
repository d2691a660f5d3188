"""The functions of CEL: `signatures` lists every overload, the other modules implement them.

`standard` has CEL's own functions, `strings` and `lists` its extensions, `kubernetes` and `network` Kubernetes' additions. Not
here: the rules of Go's time package (`../timestamps`), the costs of calls (`../compiler/call_costs`). Begin with `signatures`.
"""
