"""What the results mean: measures, tables, figures and metrics of runs. Reads only what `testbed.records` holds.

`comparison` turns runs into frames: `measures` per round, `losses` (who was lost where), `summary` (one flat object a
run), `rows` (which runs are repetitions, which is the baseline), `overhead` (the comparison, over all rounds or round
by round), `tuning`. `figures` draws them, `timeline` shows rounds moment by moment. `multi_round` holds the metrics
of the participation matrix, `privacy` what runs have spent, `attacks` attacks on records, carried out, `bounds` the
papers' guarantees as numbers, and `reproduction` the papers' tables and figures.

`tables` is the one way to text, Markdown, LaTeX, CSV and JSON; it escapes names for each, and scales units.
"""

from analysis.matplotlib_settings import ignore_working_directory

ignore_working_directory()  # here, as every module that draws lies below
