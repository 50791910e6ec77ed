"""The experiment file: its sections, loading and validation, and the points of its sweep."""

from testbed.experiment.schema import Experiment, Point, load

__all__ = ["Experiment", "Point", "load"]
