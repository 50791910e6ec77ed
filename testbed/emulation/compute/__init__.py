"""The cost of computation: modelled by a table or measured, and the calibration of a machine."""
