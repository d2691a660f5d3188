"""The functions of CEL: `signatures` lists every overload, the other modules implement them.

`standard` has CEL's own functions, `strings` and `lists` its extensions, `kubernetes` and `network` Kubernetes' additions. Not
here: the rules of Go's time package (`../timestamps`). The costs of calls are in `../compiler/call_costs`. Begin with
`signatures`.
"""
