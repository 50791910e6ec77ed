"""Parts that aggregation protocols share. A protocol imports from here, never from the folder of another protocol.

At the client: ``participant`` (a client in one round), ``serving`` (a client that serves the others). At the server:
``server_checks``, ``key_adverts``. At both: ``sealing`` (contents that the server passes on), ``parameters`` (keys of
the section), ``message_parts``, and the mapping from updates to elements that are summed: ``ring_elements`` (with
noise; ``server_noise``: the server's), ``compression``.
"""
