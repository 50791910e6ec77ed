"""Former name of the command, which console scripts of earlier installations import.

An editable installation keeps its script until it is renewed; the command then prints a line that says so.
"""

from testbed.cli import main as main
