"""Questions after misspelt names, and durations: each is worded in one place."""

import re
from pathlib import Path

import pytest

from testbed.durations import aligned_duration, clock_time, duration, in_largest_unit, rounded_duration
from testbed.spelling import did_you_mean, question, similar

ROOT = Path(__file__).parent.parent
SHIPPED = [path for folder in ("testbed", "analysis", "cluster", "workloads") for path in (ROOT / folder).rglob("*.py")]


def test_the_question_names_what_is_most_alike() -> None:
    assert did_you_mean("ruonds", ["population", "rounds"]) == "did you mean 'rounds'? "
    assert did_you_mean("ruonds", {"rounds": 1}, quoted=False) == "did you mean rounds? "
    assert did_you_mean("zzz", ["rounds"]) == question([]) == ""
    assert question(["a", "b"]) == "did you mean 'a' or 'b'? "
    assert similar("fig1", ["fig2", "fig10", "table"], most=2) == ["fig10", "fig2"]
    assert similar("fig1", ["fig2"], cutoff=0.9) == []


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        (clock_time, {59.6: "1:00", 754: "12:34", 3723: "1:02:03"}),
        (duration, {0.04: "0.0 s", 599.9: "599.9 s", 600: "10:00 min", 3599.6: "1:00:00 h"}),
        (rounded_duration, {119: "119 s", 121: "2 min", 7199: "120 min", 7200: "2.0 h"}),
        (in_largest_unit, {0: "0 s", 0.0004: "0.4 ms", 59: "59 s", 3600: "1 h", 129_600: "1.5 d", -60: "-1 min"}),
        (aligned_duration, {2e-10: "    0.2 ns", 4.2e-5: "     42 us", 0.5: "    500 ms", 90: "     90 s "}),
    ],
)
def test_durations_have_the_form_of_their_place(form: object, texts: dict[float, str]) -> None:
    assert callable(form)
    assert {seconds: form(seconds) for seconds in texts} == texts


def test_no_module_words_them_again() -> None:
    assert len(SHIPPED) > 300
    again = re.compile(r"^import difflib|^from difflib|def _?(duration|clock_time)\(", re.MULTILINE)
    wording = [path.relative_to(ROOT).as_posix() for path in SHIPPED if again.search(path.read_text(encoding="utf-8"))]
    assert sorted(wording) == ["testbed/durations.py", "testbed/spelling.py"]
