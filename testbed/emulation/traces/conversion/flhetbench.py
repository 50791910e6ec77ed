"""FLHetBench's state cases: a list that assigns a phone of FLASH to each client.

    ["37", "37", "576", ...]

Client i follows the phone at position i of the list, out of those in a `cached_timers.json` (`flash`); several clients
may follow one phone. FLHetBench repeats a phone's recording for ever (`bench/timer.py`), and a client of a phone
without a recording is never online.

Source:
    Zhang, Zeng et al., FLHetBench: Benchmarking Device and State Heterogeneity in Federated Learning (CVPR 2024);
    github.com/Carkham/FLHetBench, `bench/cached_sample_data/state`.
"""

from pathlib import Path

from testbed.emulation.traces.conversion import flash
from testbed.emulation.traces.conversion.collector import Collected, Counts, Outside
from testbed.emulation.traces.conversion.json_documents import read_json
from testbed.emulation.traces.intervals import AvailabilityTrace
from testbed.emulation.traces.text_files import shown
from testbed.errors import TraceError

_WHAT = 'a state case is a list of phones, ["37", "576", ...]'


def convert(path: Path, timers: Path, outside: Outside = "repeat") -> tuple[AvailabilityTrace, Counts]:
    """Return the trace of a state case: client i is client i of the case, with the name of its phone.

    Args:
        path: the case.
        timers: the `cached_timers.json` with the phones.
        outside: the state of a phone outside its own recording.

    Returns:
        The trace, with time 0 at the midnight before the first recording begins, and the counts.

    Raises:
        TraceError: not such files, or a phone that is not among the timers.
    """
    case = read_json(path, _WHAT)
    if not isinstance(case, list) or not case or not all(isinstance(phone, str | int) for phone in case):
        raise TraceError(f"{path}: no list of phones; {_WHAT}")
    phones = flash.read_timers(timers)
    names = [str(phone) for phone in case]
    for place, name in enumerate(names):
        if name not in phones:
            raise TraceError(f"{path}: client {place}: no phone {shown(name)} in {timers}")
    usable = {name: phones[name] for name in names if not phones[name].unusable}
    if not usable:
        raise TraceError(f"{path}: not one of its phones has a recording in {timers}")
    somewhere = next(iter(usable.values())).recorded  # any recording: a phone without one is never online
    collected = Collected(str(path), by_place=True)
    for name in names:
        device = collected.device(name, *(usable[name].recorded if name in usable else somewhere))
        for from_s, until_s in usable[name].online if name in usable else ():
            collected.online(device, from_s, until_s)
    without = sum(name not in usable for name in names)
    collected.counts |= {"phones": len(set(names)), "devices_without_a_recording": without}
    return collected.trace(outside, *collected.whole_days(), keep_recordings=True)
