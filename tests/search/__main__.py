"""`python -m tests.search`: the long search, by hand. See docs/explanation/search.md."""

import argparse
import sys

from tests.search.least_sums.catalogue import SEARCHES
from tests.search.mixes import MIXES, guarded, left_open, unguarded
from tests.search.mutants import mutants, noticed
from tests.search.runner import Found, replayed, search


def table(servers: int, seed: int) -> None:
    """Print which missing checks the search notices."""
    count = 0
    for mutant in mutants():
        found = noticed(mutant, seed, servers)
        count += found is not None
        what = f"{found.kind} ({found.mix}, server {found.servers})" if found else f"not noticed by {servers} servers"
        print(f"{mutant.name}: {what}", flush=True)
    print(f"{count} of {len(mutants())} noticed")


def least_sums(budget: int, seed: int, part: str) -> int:
    """Return the number of false statements of least sums, for protocols with `part` in their name."""
    new = 0
    for search_of in SEARCHES:
        if part not in search_of.protocol:
            continue
        for result in search_of.results(budget, seed):
            new += result.is_new
            print(result.line, flush=True)
    return new


def main() -> int:
    """Search every mix and every least sum; return 1 if a new attack was found."""
    options = argparse.ArgumentParser(prog="python -m tests.search", description="Search for malicious servers.")
    options.add_argument("--seconds", type=float, default=600, help="CPU time for all mixes together (default: 600)")
    options.add_argument("--seed", type=int, default=1, help="of the decisions (default: 1)")
    options.add_argument("--mix", default="", help="only mixes with this in their name")
    options.add_argument("--unguarded", action="store_true", help="with the fixes switched off")
    options.add_argument("--replay", help="decisions as they were printed, of one --mix: what each client was told")
    options.add_argument(
        "--mutants", type=int, metavar="N", help="leave out one check at a time, N servers in each mix"
    )
    options.add_argument(
        "--kind", choices=("both", "random", "least-sums"), default="both",
        help="random: servers of small rounds, decision by decision; least-sums: the choices of a server are optimised "
        "against the least sum that each protocol states, on its own graphs and thresholds (default: both)",
    )  # fmt: skip
    options.add_argument(
        "--budget", type=int, default=4, help="times the choices of the checks, for least sums (default: 4)"
    )
    options.add_argument("--protocol", default="", help="only least sums of protocols with this in their name")
    given = options.parse_args()
    if given.mutants is not None:
        table(given.mutants, given.seed)
        return 0
    new = 0
    if given.kind != "random" and not given.mix and given.replay is None:
        new += least_sums(given.budget, given.seed, given.protocol)
    if given.kind == "least-sums" or given.protocol:
        return int(new > 0)
    chosen = [mix for mix in MIXES if given.mix in mix.name]
    if not chosen:
        options.error(f"--mix: none has {given.mix!r} in its name; there are: " + "; ".join(mix.name for mix in MIXES))
    chosen = [(unguarded if given.unguarded else guarded)(mix) for mix in chosen]
    if given.replay is not None:
        print(replayed(chosen[0], given.replay))
        return 0
    for mix in chosen:
        found = search(mix, given.seed, seconds=given.seconds / len(chosen))
        print(found.line, flush=True)
        for kind, (line, decisions) in found.violations.items():
            known = given.unguarded or mix.known_broken or kind in left_open(mix)
            new += not known
            print(f"  {'known' if known else 'NEW'}: {line}\n    --replay '{Found.written(decisions)}'")
    return int(new > 0)


if __name__ == "__main__":
    sys.exit(main())
