"""The command under its former name, which console scripts of earlier installations import.

An editable installation keeps its script until it is renewed. It is then answered with a line that says so.
"""

from testbed.cli import main as main
