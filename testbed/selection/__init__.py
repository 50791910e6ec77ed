"""Selection protocols: one module for each published protocol, under the name that the field uses.

`contract` has the input and the output of a protocol, `check_in` the question that finds the available clients.
"""
