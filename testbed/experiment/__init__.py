"""The experiment file: its sections, how it is loaded and checked, and the points of its sweep."""

from testbed.experiment.schema import Experiment, Point, load

__all__ = ["Experiment", "Point", "load"]
