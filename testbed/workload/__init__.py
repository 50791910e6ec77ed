"""What clients learn: the contract that a workload keeps, and the experiment's section that describes one."""
