"""What computing costs: modelled or measured, and how a machine is calibrated."""
