"""The virtual clock beside the kernel's TCP: `python -m benchmarks.fidelity`."""
