"""Transport between messages and links: headers, connections, congestion windows and loss.

- `section`: the keys of an experiment, presets, and the bytes of headers;
- `flights`: a transfer as a sequence of flights, one per congestion window.
"""
