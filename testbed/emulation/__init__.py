"""What stands for the world: links, devices, availability, traces, and the cost of computing."""
