"""Metered operations, and the table that turns them into seconds."""

import asyncio
import gc
import math

import pytest

from testbed.emulation.compute.cost import (
    REFERENCE_COSTS,
    ComputeModel,
    Meter,
    meter,
    meter_parallel,
    meter_pki,
    metered,
    thread_cpu_s,
)
from testbed.errors import ExperimentError


def test_operations_are_collected_by_the_innermost_block() -> None:
    meter("hmac")  # nothing is being metered: nothing happens
    with metered() as outer:
        meter("hmac", 2)
        with metered() as inner:
            meter("hmac", 5)
            meter("message")
            meter_pki(bytes_up=3, bytes_down=4)
            meter_parallel(0.5)
        meter("hmac")
    assert outer == Meter({"hmac": 3})
    assert inner == Meter({"hmac": 5, "message": 1}, parallel_s=0.5, pki_bytes_up=3, pki_bytes_down=4)


def test_a_block_ends_with_an_exception_too() -> None:
    with metered() as outer:
        with pytest.raises(KeyError), metered():
            raise KeyError
        meter("hmac")
    assert outer.counts == {"hmac": 1}


def test_threads_meter_for_the_block_that_started_them() -> None:
    async def work() -> Meter:
        with metered() as block:
            for _ in range(3):
                await asyncio.to_thread(meter, "hmac", 2)
        return block

    assert asyncio.run(work()).counts == {"hmac": 6}


@pytest.mark.filterwarnings("error")
def test_an_abandoned_block_leaves_nothing_behind() -> None:
    """As when a run is interrupted inside a stage."""

    async def interrupted() -> None:
        scope = metered()
        scope.__enter__()
        del scope
        gc.collect()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())
    gc.collect()


def test_modelled_seconds_are_the_exact_sum_of_the_table() -> None:
    model = ComputeModel(False, {"a": 0.1, "b": 0.2, "c": 1e-18})
    assert model.modelled_s({"a": 3, "b": 1, "c": 1}) == math.fsum([3 * 0.1, 0.2, 1e-18])
    assert model.modelled_s({"b": 1, "a": 3, "c": 1}) == model.modelled_s({"c": 1, "a": 3, "b": 1})
    assert model.seconds(Meter({"a": 1}, parallel_s=9.0), 7.0) == 0.1
    assert ComputeModel(True, {}).seconds(Meter({"a": 1}, parallel_s=9.0), 7.0) == 16.0


def test_an_operation_that_the_table_lacks_is_named() -> None:
    with pytest.raises(ExperimentError, match=r"no 'my-own\.operation'"):
        ComputeModel(False, REFERENCE_COSTS).modelled_s({"hmac": 1, "my-own.operation": 2})


def test_thread_time_runs_only_while_this_thread_works() -> None:
    before = thread_cpu_s()
    while thread_cpu_s() == before:
        sum(range(1000))
    assert thread_cpu_s() > before
