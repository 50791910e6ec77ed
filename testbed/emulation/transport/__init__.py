"""What lies between a message and a link: headers, connections, congestion windows and loss.

`section`: the keys, presets, and what headers cost. `flights`: a transfer as the windows that it is sent in.
"""
