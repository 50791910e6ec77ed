"""Aggregation protocols: one module per published protocol, named as the field names it.

`contract` holds the input and the result of a protocol. Beside it: `batch_policy` (the clients that may be summed
together) and `quantisation` (the mapping from updates to elements that are summed). `kit` has the parts that protocols
share.
"""
