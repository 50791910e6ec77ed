"""What aggregation protocols share. A protocol imports from here, and never from another protocol's folder.

``participant`` is a client in one round, ``server_checks`` what servers verify, ``batches`` who may be summed with
whom, ``ring_elements`` how updates become elements of a ring, with noise (``server_noise``), by levels
(``quantisation``) or compressed (``compression``).
"""
