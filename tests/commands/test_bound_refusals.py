"""Mistakes in the parameters of ``testbed bound`` and ``testbed plan``: one line that names the option."""

from collections.abc import Callable
from typing import Any

import pytest

SMALL = "--population 10 --dishonest 1 --participants 5"
LOTTO_DP = f"bound lotto-dp {SMALL} --rounds 5"
VERIFIABLE = "bound verifiable-batch-partition --population 120 --dishonest 12 --participants 12 --privacy 3"
COMMITTEE = "bound committee --population 1000 --dishonest 100 --size 30 --threshold 20"
PATTERN = "bound participation --rounds 12 --separation 4 --noise-multiplier 3 --delta 1e-5 --samples 20000"
RANDOM = "bound random-participation --local-samples 30 --client-rate 0.001 --sample-rate 0.1 --delta 1e-6"
BATCHES = "bound batch-partition --users 120 --selected 12 --privacy 3 --dropout 0.1"
UNEQUAL = ",".join(["0.1", "0.2"] * 60)
THEOREM_2 = (
    "--smoothness 2 --convexity 1 --gradient-variance 1 --gradient-bound 10 --heterogeneity 0.5 --initial-distance 1"
)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("bound lotto --population 10 --dishonest 11 --participants 5", "--dishonest: 11 of a population of 10"),
        ("bound lotto --population 10 --dishonest 1 --participants 11", "--participants: 11 of a population of 10"),
        ("bound lotto --population 10 --dishonest -1 --participants 5", "--dishonest: -1; must be at least 0"),
        ("bound lotto --population 0 --dishonest 0 --participants 5",
         "Invalid value for '--population': 0: must be at least 1; see `testbed bound lotto --help`"),
        ("bound lotto --population ten --dishonest 0 --participants 5",
         "Invalid value for '--population': ten: not a whole number; see `testbed bound lotto --help`"),
        (f"bound lotto {SMALL} --over-selection x", "Invalid value for '--over-selection': x: not a number; see"),
        (f"bound lotto --population {10**70} --dishonest 0 --participants 5",
         f"Invalid value for '--population': 1{'0' * 36}...: must be at most 10000000000; see"),
        (f"bound lotto {SMALL} --over-selection 0.99", "--over-selection: 0.99; must be at least 1"),
        (f"bound lotto {SMALL} --over-selection nan", "--over-selection: nan is not a number"),
        (f"bound lotto {SMALL} --over-selection inf", "--over-selection: inf is not a number"),
        (f"bound lotto {SMALL} --threshold 2", "--threshold: t = 2 of 5 participants; allowed 3 to 5"),
        (f"bound lotto {SMALL} --threshold 6", "--threshold: t = 6 of 5 participants; allowed 3 to 5"),
        (f"bound lotto {SMALL} --threshold nan", "--threshold: nan is not a number"),
        (f"bound lotto {SMALL} --threshold most", "--threshold: most is neither a number of participants nor a"),
        (f"bound lotto {SMALL} --eta 0", "--eta: 0.0; must be above 0"),
        (f"bound lotto {SMALL} --min-population 11", "--min-population: n_min = 11 of a population of 10"),
        ("bound lotto --population 10", "Missing option '--dishonest'; see `testbed bound lotto --help`"),
        (f"{LOTTO_DP} --noise-multiplier 0", "--noise-multiplier: 0.0; must be a number"),
        (f"{LOTTO_DP} --noise-multiplier nan", "--noise-multiplier: nan; must be a number"),
        (f"bound lotto-dp {SMALL} --rounds 0 --noise-multiplier 1", "Invalid value for '--rounds': "),
        (f"{LOTTO_DP} --noise-multiplier 1 --delta 1", "--delta: 1.0; must be above 0"),
        (f"{LOTTO_DP} --noise-multiplier 1 --delta nan", "--delta: nan; must be above 0"),
        (f"{LOTTO_DP} --noise-multiplier 1 --scale -1", "--scale: -1.0; must be a number"),
        (f"{LOTTO_DP} --noise-multiplier 1 --dimension 0", "Invalid value for '--dimension': "),
        *(
            (f"{LOTTO_DP} --noise-multiplier {wrong}", f"--noise-multiplier: {wrong}; must be a")
            for wrong in ("1e-300", "1e+300", "inf", "-1.0")
        ),
        *(
            (f"{LOTTO_DP} --noise-multiplier 5 --scale {wrong}", f"--scale: {wrong}; must be a")
            for wrong in ("1e-300", "1e+300", "nan", "inf")
        ),
        (f"{LOTTO_DP} --noise-multiplier 1 --dimension {10**400}",
         f"--dimension: {10**400}; must be a number from 1 to 1e+12"),
        ("bound lotto-dp --population 10000000000 --dishonest 10000000000 --participants 5000000000 --rounds 5 "
         "--noise-multiplier 1", "Invalid value for '--participants': "),
        (f"{LOTTO_DP} --noise-multiplier 1 --maximum-population 9",
         "--maximum-population: n_max = 9 is below the population of 10"),
        (f"{LOTTO_DP} --noise-multiplier 1 --maximum-population {10**400}",
         "Invalid value for '--maximum-population': "),
        ("bound lotto-dp --population 10 --dishonest 11 --participants 5 --rounds 5 --noise-multiplier 1",
         "--dishonest: 11 of a population of 10"),
        (f"plan lotto {SMALL} --target 0", "--target: 0.0; must be above 0 and below 1"),
        (f"plan lotto {SMALL} --target nan", "--target: nan; must be above 0 and below 1"),
        (f"plan lotto {SMALL} --target 0.1 --sufficiency 1", "--sufficiency: 1.0; must be above 0 and below 1"),
        (f"plan lotto {SMALL} --target 0.1 --base-rate 1.5", "--base-rate: 1.5; must be above 0 and at most 1"),
        (f"plan lotto {SMALL} --target 0.1 --base-rate nan", "--base-rate: nan is not a number"),
        (f"plan lotto {SMALL} --target 0.1 --eta -1", "--eta: -1.0; must be above 0"),
        (f"plan lotto {SMALL}", "Missing option '--target'; see `testbed plan lotto --help`"),
        (f"{VERIFIABLE} --privacy 5", "--privacy: T = 5 does not divide K = 12"),
        (f"{VERIFIABLE} --over-selection 11", "--over-selection: 11.0; a K/n exceeds 1, at most 10"),
        (f"{VERIFIABLE} --dishonest 121", "--dishonest: 121 of a population of 120"),
        (f"{VERIFIABLE} --threshold 0.4", "--threshold: t = 5 of 12 participants; allowed 7 to 12"),
        (f"{COMMITTEE} --threshold 0.4", "--threshold: 12 of 30 members; allowed 16 to 30"),
        (f"{COMMITTEE} --dishonest 1001", "--dishonest: 1001 of a population of 1000"),
        (f"{COMMITTEE} --size 2000 --threshold 0.7", "--size: 2000 members of a population of 1000; at most 1000"),
        (f"{COMMITTEE} --weights nowhere.txt", "--weights: nowhere.txt: not a readable file"),
        ("bound correlated --rounds 1", "Invalid value for '--rounds': 1: must be at least 2"),
        ("bound correlated --rounds 40 --epsilon -1", "--epsilon: -1.0; must be above 0"),
        ("bound correlated --rounds 40 --delta 1", "--delta: 1.0; must be above 0 and below 1"),
        (f"{PATTERN} --separation 13", "--separation: 13 of 12 rounds"),
        (f"{PATTERN} --separation 3000", "--separation: 3000 of 12 rounds; at most 2000"),
        (f"{PATTERN} --delta 1.5", "--delta: 1.5; must be above 0 and below 1"),
        (f"{PATTERN} --noise-multiplier 0", "--noise-multiplier: 0.0; must be above 0"),
        (f"{PATTERN} --coefficients 1,x", "--coefficients: '1,x'; give numbers with commas"),
        (f"{PATTERN} --coefficients 0,1", "--coefficients: the first must be above 0"),
        (f"{PATTERN} --coefficients 1,nan", "--coefficients: the first must be above 0, and none negative or infinite"),
        (f"{PATTERN} --coefficients 1e300", "--noise-multiplier: 3.0; must be above 1e-100 of a client's contribution"),
        (f"{PATTERN} --confidence 0.9999999999999999", "--confidence: 0.9999999999999999; at most 1 - 1e-12"),
        (f"{PATTERN} --bands 2000000", "Invalid value for '--bands': "),
        (f"{PATTERN} --bands 2 --coefficients 1", "--bands, --coefficients: both define C"),
        (f"{RANDOM} --client-rate 0 --sigma 1", "--client-rate: 0.0; must be above 0 and at most 1"),
        (f"{RANDOM} --sigma -1", "--sigma: -1.0; must be above 0 and finite"),
        (RANDOM, "--epsilon: give either epsilon or sigma"),
        (f"{RANDOM} --sigma 1 --clip 0", "--clip: 0.0; must be above 0 and finite"),
        (f"{BATCHES} --privacy 5", "--privacy: T = 5 does not divide K = 12"),
        (f"{BATCHES} --dropout 1.1", "--dropout: 1.1 is not a probability"),
        (f"{BATCHES} --dropout 0.1,0.2", "--dropout: 2 probabilities for 120 users"),
        (f"{BATCHES} --dropout nowhere.txt", "--dropout: 'nowhere.txt' is neither a number"),
        (f"{BATCHES} --dropout ,", "--dropout: no numbers"),
        (f"{BATCHES} --simulate 7", "--simulate: 7 rounds"),
        (f"{BATCHES} --smoothness 1", "--convexity: missing"),
        (f"{BATCHES} --dropout {UNEQUAL} {THEOREM_2}", "--dropout: Theorem 2"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(call: Callable[..., Any], arguments: str, complaint: str) -> None:
    ended = call(*arguments.split())
    assert (ended.code, ended.out) == (2, "")
    assert len(ended.errors) == 1
    assert ended.errors[0].startswith(f"error: {complaint}")
