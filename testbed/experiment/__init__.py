"""The experiment file: its sections, how it is loaded and checked, and the points of its sweep."""

from testbed.experiment.loader import load
from testbed.experiment.schema import Experiment
from testbed.experiment.sweep import Point

__all__ = ["Experiment", "Point", "load"]
