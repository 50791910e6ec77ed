"""The same task here and in other frameworks, side by side: `python -m benchmarks.peers`."""
