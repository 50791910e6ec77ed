"""What the results mean: measures, tables, figures and metrics of runs. Reads only what `testbed.records` holds.

`measures` turns one run into tidy frames per round, `summary` into one flat object; `rows` says which runs are
repetitions of each other and which is the baseline, `overhead` compares, `rendering` prints, `figures` draws;
`multi_round` holds the metrics of the participation matrix.
"""
