"""A process whose threads use new kinds of messages for the first time at once: ``python -m tests.messages.first_use``.

Hosts in one process do so in the first round of a run. Each kind is new in this process; nothing but `testbed.messages`
stands between the threads.
"""

import functools
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np

from testbed.messages import Message, Vector, attach, decode, detach, encode


def fresh(number: int) -> type[Message]:
    """A kind of message that nobody has used: its fields have types of their own, which have fields themselves."""
    inner: Any = type(
        f"Inner{number}",
        (Message,),
        {"__annotations__": {"client": int, "proof": bytes}, "__module__": __name__},
        frozen=True,
    )
    lists = {f"list{at}": Annotated[list[inner], msgspec.Meta(max_length=1000 + at)] for at in range(6)}
    annotations = {"round": int, **lists, "update": Vector}
    outer: Any = type(
        f"Outer{number}", (Message,), {"__annotations__": annotations, "__module__": __name__}, frozen=True
    )
    globals()[inner.__name__] = inner
    outer.inner = inner  # for `message`
    kind: type[Message] = outer
    return kind


def message(kind: Any) -> Message:
    """One of that kind."""
    made: Message = kind(1, *[[kind.inner(2, b"x")] for _ in range(6)], Vector(np.zeros(4, np.float32), 0))
    return made


def at_once(tasks: list[Callable[[], object]]) -> list[BaseException]:
    """Do the tasks in a thread each, which begin together; what they raised."""
    barrier, raised = threading.Barrier(len(tasks)), []

    def do(task: Callable[[], object]) -> None:
        barrier.wait()
        try:
            task()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=do, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def main(kinds: int) -> None:
    """Use a number of message types for the first time, each in five threads at once."""
    sys.setswitchinterval(1e-6)
    for number in range(kinds):
        kind = fresh(number)
        sent = message(kind)
        whole, apart = encode(sent), detach(sent)
        decoding = functools.partial(decode, kind, whole)
        attaching = functools.partial(attach, kind, apart.header, apart.vectors)
        raised = at_once([decoding, decoding, attaching, attaching, functools.partial(encode, sent)])
        if raised:
            raise raised[0]


if __name__ == "__main__":
    main(int(sys.argv[1]))
