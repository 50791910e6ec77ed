"""Max-min fair sharing of the server's link among concurrent transfers.

The virtual clock calls `transfers`. If the link is full, `max_min` follows the level of equal rates from event to event
while the transfers' own rates are constant (`cohort`: in sorted order, if all begin before one ends). If rates change
or transfers are cut off, time is divided into `windows`, and `time_varying` follows the same level in each window.
`flights` tracks how transfers move from one flight to the next.
"""
