"""The paper's numbers, as they are read and as they are used."""

import pytest

from analysis.reproduction.lotto.published import (
    APPLICATIONS,
    PARAMETERS,
    PARTICIPANTS,
    SAMPLES,
    TABLE_2,
    TABLE_3,
    Application,
    derived,
)


def test_every_cell_is_there() -> None:
    assert len(TABLE_2) == len(TABLE_3) == 3 * 3 * 3
    cost = TABLE_2["OpenImage", 700, "Cli-Ctr"]
    assert (cost.server_min, cost.client_min, cost.client_mb) == (6.23, 5.06, 3.66)
    assert cost.server_mb == pytest.approx(0.45 * 1024)
    assert TABLE_3["Reddit", 100, "Oort"].server_mb == 958.55


def test_the_papers_megabytes_are_binary() -> None:
    """Bytes per participant are the same at 100 and at 700 clients only if GB are 1024 of its MB."""
    few, many = (TABLE_2["Reddit", population, "Rand"].server_mb for population in (100, 700))
    assert many / PARTICIPANTS[700] == pytest.approx(few / PARTICIPANTS[100], rel=2e-3)


@pytest.mark.parametrize("application", APPLICATIONS)
def test_two_cells_predict_the_third(application: Application) -> None:
    """Training and masks read off at 100 and 700 clients give the paper's client time at 400 within 7%."""
    transfer_bytes = PARAMETERS[application] * 8
    found = derived(application, transfer_bytes)
    parameters, epochs = PARAMETERS[application], {"OpenImage": 3}.get(application, 2)

    def client_min(population: int) -> float:
        training_s = found.parameter_example_s * parameters * SAMPLES[application] * epochs
        masks_s = PARTICIPANTS[population] * found.mask_element_s * parameters
        return (training_s + masks_s + 8 * transfer_bytes / 44e6) / 60

    for population in (100, 700):
        assert client_min(population) == pytest.approx(TABLE_2[application, population, "Rand"].client_min)
    assert client_min(400) == pytest.approx(TABLE_2[application, 400, "Rand"].client_min, rel=0.07)
