"""The parts that aggregation protocols share. A protocol imports from here, and never from another protocol's folder.

At the client: ``participant`` (a client in one round), ``masking`` (its masked update), ``serving`` (a client that
serves the others). At the server: ``server_round``, ``server_checks``, ``key_adverts``. At both: ``sealing`` (contents
that the server passes on), ``parameters`` (keys of the section), ``batch_policy`` (which clients may be summed
together), ``message_parts``, and how updates become elements that are summed: ``ring_elements`` (with noise, or the
server's: ``server_noise``), ``quantisation``, ``compression``.
"""
