"""A number, or a fraction as it is written."""

from testbed.counts import rounded_down, rounded_up


def test_a_number_is_what_it_is_and_a_fraction_what_is_written() -> None:
    assert (rounded_up(7, 100), rounded_down(7, 100)) == (7, 7)
    assert (rounded_up(0.07, 100), rounded_down(0.07, 100)) == (7, 7)  # 0.07 * 100 is above 7 in floats
    assert (rounded_up(0.29, 100), rounded_down(0.29, 100)) == (29, 29)  # and 0.29 * 100 below 29
    assert (rounded_up(0.5, 7), rounded_down(0.5, 7)) == (4, 3)
