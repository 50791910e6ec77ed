"""What the results mean: measures, tables, figures and metrics of runs. Reads only what `testbed.records` holds.

`measures` turns one run into tidy frames per round, `losses` counts who was lost where, `summary` makes one flat
object; `rows` says which runs are repetitions of each other and which is the baseline, `overhead` compares, `pairing`
compares round by round, `dropouts` tabulates losses, `rendering` prints, `figures` and `availability_figures` draw;
`multi_round` holds the metrics of the participation matrix.
"""
