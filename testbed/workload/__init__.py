"""The learning task: contracts of workloads, and the experiment's section that describes one."""
