"""The experiment file: its sections, how it is loaded and checked, and the points of its sweep."""

from testbed.experiment.loader import Experiment, load
from testbed.experiment.sweep import Point

__all__ = ["Experiment", "Point", "load"]
