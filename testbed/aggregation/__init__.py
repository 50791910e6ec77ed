"""How updates become one: one module per published protocol, named as the field names it.

`contract` holds what a protocol is given and what it returns; `ring_elements` how updates become such.
"""
