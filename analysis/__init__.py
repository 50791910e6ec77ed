"""Analysis of results: measures, tables, figures and metrics of runs. Reads records only.

`comparison` turns runs into frames: `measures` per round, `losses` (clients lost, by stage), `summary` (one flat object
a run), `rows` (repetitions and the baseline), `overhead` (the comparison, over all rounds or round
by round), `tuning`. `figures` draws them, `timeline` shows rounds moment by moment. `multi_round` holds the metrics
of the participation matrix, `privacy` the privacy cost of runs, `attacks` attacks on records, `bounds` the
papers' guarantees as numbers, and `reproduction` the papers' tables and figures.

`tables` is the one way to text, Markdown, LaTeX, CSV and JSON; it escapes names for each, and scales units.
"""

from analysis.matplotlib_settings import ignore_working_directory

ignore_working_directory()  # here, as every module that draws lies below
