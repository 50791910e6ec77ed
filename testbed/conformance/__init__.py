"""Properties that every protocol of a contract must have, built in or user-defined.

A property is a function from the evidence about one class to a line of text; it raises `Violation` if the class lacks
the property. ``testbed check`` prints the results for a user-defined class, and ``tests/conformance`` checks every
built-in protocol.
"""
