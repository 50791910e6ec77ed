"""How concurrent transfers share the server's link max-min fairly.

`transfers` is what the virtual clock calls. Where the link is full, `max_min` follows the level of equal rates from
event to event while the transfers' own rates are constant (`cohort`: in sorted order, if all begin before one ends);
where they change or transfers are cut off, time is cut into `windows`, and `time_varying` follows the same level in
each. `flights` is how transfers get from one flight to the next.
"""
