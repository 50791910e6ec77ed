"""The process of a Flower app, run by the interpreter of its environment; imports flwr and nothing of the testbed.

`workloads.flower.app` starts it and asks; frames go both ways over its standard input and its former standard output
(the app's own prints go to standard error). Nothing is pickled. It is imported as ``flower_bridge``, so that an app's
modules may have any other name.
"""
