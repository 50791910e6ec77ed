"""Who takes part in a round: one module per published protocol, named as the field names it.

`contract` holds what a protocol is given and what it returns; `check_in` how a server learns who is there.
"""
