"""FLHetBench's state cases: a list that says which of FLASH's phones each client behaves like.

    ["37", "37", "576", ...]

Client i follows the phone that stands at place i, of those in a `cached_timers.json` (`flash`); several may follow one.
There, a phone's recording is repeated for ever (`bench/timer.py`), and a client whose phone has none is never online.

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
    """The trace of a state case: client i of it is client i of the case, and called like its phone.

    Args:
        path: the case.
        timers: the `cached_timers.json` with the phones.
        outside: the state of a phone outside its own recording.

    Returns:
        The trace, time 0 being the midnight before the first recording begins, and the counts.

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
    somewhere = next(iter(usable.values())).recorded  # one that has none is never online, whatever was watched
    collected = Collected(str(path), by_place=True)
    for name in names:
        device = collected.device(name, *(usable[name].recorded if name in usable else somewhere))
        for from_s, until_s in usable[name].online if name in usable else ():
            collected.online(device, from_s, until_s)
    without = sum(name not in usable for name in names)
    collected.counts |= {"phones": len(set(names)), "devices_without_a_recording": without}
    return collected.trace(outside, *collected.whole_days(), keep_recordings=True)
