"""A host: many logical clients in one process (this one, or a Ray actor).

`LocalHosts` are hosts in this process, for unit tests and debugging, with plain stack traces and without Ray.
"""

import asyncio
import functools
from bdb import BdbQuit
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from testbed.arrays import Ids
from testbed.crashes import Crash, OnCrash, is_crash
from testbed.crypto.memo import memo_scope
from testbed.emulation.compute.cost import metered, thread_cpu_s
from testbed.errors import ProtocolError, Refusal, RoundAborted, RunError
from testbed.messages import Detached, Message, RefusalNotice, Vector, attach, decode, detach, question_name
from testbed.network.hosts import ClientRefusal, Delivery, HostAnswers, SharedAnswer
from testbed.network.sums import Sum, float_total, merged, ring_total
from testbed.parties.client import Client, Environment, RoleSpec
from testbed.parties.host_assignment import chosen_on, owned_by, split
from testbed.parties.idle_clients import DeferredQuestion, IdleClients
from testbed.parties.pki import PKI, Identity

Handle = Callable[[Client, Message | None], Message | None]

FEW_ALIKE = 64
"""Below this number, clients are always handled one by one."""

OTHER_PROTOCOL = "message.unexpected-type"
"""The refusal of a question that belongs to no protocol of the run."""


class Host:
    """A host of clients; it runs their handlers.

    Args:
        numbers: numbers of its clients, sorted.
        environment: settings shared by the clients.
        roles: the protocols' client sides.
        last_round: rounds up to this one are over (in a resumed run); clients refuse them.
        on_crash: reaction to a crash of a handler. stop: clients after it are not asked, since the run ends; drop: the
            client drops out; raise: the exception is raised unchanged.
    """

    def __init__(
        self,
        numbers: Ids,
        environment: Environment,
        roles: Sequence[RoleSpec],
        *,
        last_round: int = 0,
        on_crash: OnCrash = "stop",
    ) -> None:
        self.numbers = numbers
        self.environment = environment
        self._roles = list(roles)
        self._on_crash = on_crash
        self._clients: dict[int, Client] = {}
        self._idle = IdleClients(numbers, environment, last_round)
        self._registering: dict[int, Identity] = {}  # the PKI has been asked, and has not answered yet
        self._active: set[int] = set()
        # Updates stay on their host, by stage: only their sum travels to the server.
        self._vectors: dict[tuple[int, int], dict[int, Vector]] = {}

    def client(self, number: int) -> Client:
        """Return the client object, made on first use."""
        client = self._clients.get(number)
        if client is None:
            # Entered before the loop: handling a deferred question looks the client up again.
            client = self._clients[number] = self._idle.leave(number)
            for question in self._idle.deferred:
                self._catch_up(client, question)
        return client

    def _catch_up(self, client: Client, question: DeferredQuestion) -> None:
        """Handle a question that another client has answered on behalf of this one, to update its state."""
        # The answer is dropped: the server has it already, as part of the shared answer.
        at = int(np.searchsorted(question.clients, client.number))
        if at < len(question.clients) and question.clients[at] == client.number:
            self._deliver(question.delivery.restricted(question.delivery.recipients == client.number), alike=False)

    @property
    def questions(self) -> dict[str, type[Message]]:
        """The types of the questions that its clients answer, by name (`question_name`)."""
        return {question_name(kind): kind for spec in self._roles for kind in spec.role._handlers}

    # -- registration ----------------------------------------------------------------------------------------

    def registrations(self, first: int = 0, count: int | None = None) -> list[bytes]:
        """Return the requests to the PKI of `count` clients (default: all), from the `first` of this host's on."""
        end = None if count is None else first + count
        numbers = self.numbers[first:end].tolist()
        former = self._registering
        # A repeated request must have the same keys: the PKI refuses a second signing key of a client.
        self._registering = {number: former.get(number) or self._identity(number) for number in numbers}
        return [identity.registration() for identity in self._registering.values()]

    def accept_registrations(self, answers: Sequence[bytes]) -> None:
        """Accept the PKI's answers to the latest `registrations`, in their order."""
        for (number, identity), answer in zip(self._registering.items(), answers, strict=True):
            identity.accept(answer)
            self._idle.keep(number, identity)
            if number in self._clients:
                self._clients[number].identity = identity
        self._registering = {}

    def _identity(self, number: int) -> Identity:
        """Return the client's identity, a new one if it has none; it counts once the PKI has answered."""
        client = self._clients.get(number)
        identity = self._idle.identity(number) if client is None else client.identity
        return Identity(number, self.environment.randomness) if identity is None else identity

    # -- rounds ----------------------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Forget the state of earlier rounds."""
        for number in self._active:
            self._clients[number].forget_round()
        self._active.clear()
        self._idle.begin_round()
        self._vectors.clear()

    def deliver(self, delivery: Delivery) -> HostAnswers:
        """Run the handlers of `delivery.recipients` (clients of this host)."""
        with memo_scope(self.environment.results):
            answers = self._deliver(delivery)
        for memory in (self.environment.participation, self.environment.pinned_batches):
            if memory is not None:
                memory.log.sync()  # on disk before the server gets an answer
        return answers

    def _deliver(self, delivery: Delivery, alike: bool = True) -> HostAnswers:
        if len(delivery.recipients) == 0:
            return HostAnswers.empty()
        try:
            message = attach(delivery.kind, delivery.header, delivery.vectors)
        except ProtocolError as error:
            # All recipients have got the same bytes, so all of them refuse.
            return self._each(delivery, _raising(Refusal("message.malformed", str(error))))
        specs = [spec for spec in self._roles if delivery.kind in spec.role._handlers]
        if not specs:
            unanswered = Refusal(OTHER_PROTOCOL, f"{delivery.kind.__name__}: no handler for this message")
            return self._each(delivery, _raising(unanswered))
        name, stateless = specs[0].role._handlers[delivery.kind]
        if stateless and len(specs) == 1:
            return self._once_for_all(delivery, getattr(specs[0].role, name), message)

        def handle(client: Client, private: Message | None) -> Message | None:
            # The last one wins: the role of a malicious client follows the honest role that it replaces.
            spec = next(s for s in reversed(specs) if s.only is None or client.number in s.only)
            method = getattr(client.role(spec.role, spec.parameters), spec.role._handlers[delivery.kind][0])
            answer: Message | None = method(message) if private is None else method(message, private)
            return answer

        # With a private part, each is asked something else; where time is measured (no memo), each does its own work.
        common = [spec for spec in specs if spec.only is None]
        if alike and len(common) == 1 and delivery.private is None and self.environment.results is not None:
            test = common[0].role.shared_answer_predicate(message, common[0].parameters, self.environment)
            if test is not None:
                # Malicious clients may answer otherwise than the predicate of the honest role says.
                others = [number for spec in specs if spec.only is not None for number in spec.only]
                return self._one_for_all(delivery, handle, test, others)
        specs[0].role.prepare(self.environment, map(self.client, delivery.recipients.tolist()), message)
        return self._each(delivery, handle)

    def _one_for_all(
        self, delivery: Delivery, handle: Handle, test: Callable[[bytes, bytes], bool], differing: Sequence[int]
    ) -> HostAnswers:
        """Compute one answer for all clients that certainly give the same; handle the other clients singly.

        Args:
            delivery: the question.
            handle: answers it for one client.
            test: predicate of `Role.shared_answer_predicate`, valid for clients with the common role.
            differing: numbers of clients with another role.
        """
        at, recipients = self._idle.in_initial_state(delivery), delivery.recipients
        if differing:
            at = at[~np.isin(recipients[at], differing)]
        if len(at) >= FEW_ALIKE:
            at = at[self._idle.certain(recipients[at], test)]
        if len(at) < FEW_ALIKE:
            return self._each(delivery, handle)
        number, alike = int(recipients[at[0]]), recipients[at[1:]]
        example = self._each(delivery.restricted(recipients == number), handle)
        # A refusal, crash, attack or look-up may be this client's own; then nothing follows for the other clients.
        as_expected = not (example.refusals or example.crashes or example.attacks or example.pki_up.any())
        others = np.ones(len(recipients), np.bool_)
        others[at if as_expected else at[:1]] = False
        answers = HostAnswers.merged([example, self._each(delivery.restricted(others), handle)])
        if as_expected:
            size, compute_s = int(example.sizes[0]), float(example.compute_s[0])
            answers.shared = SharedAnswer(alike, example.headers.get(number), size, compute_s)
            self._idle.deferred.append(DeferredQuestion(delivery, alike, self.client(number).last_round))
        return answers

    def _once_for_all(self, delivery: Delivery, handler: Callable[..., Message], message: Message) -> HostAnswers:
        with metered() as meter:
            began = thread_cpu_s()
            try:
                answer = detach(handler(self.environment, message))
            except BdbQuit as error:
                raise KeyboardInterrupt from error
            except BaseException as error:
                if not (isinstance(error, Refusal) or is_crash(error)):
                    raise
                # Each client reacts to the error by itself, so that `on_crash` and the records treat it as any other.
                return self._each(delivery, _raising(error))
            spent = self.environment.compute.seconds(meter, thread_cpu_s() - began)
        answers = HostAnswers.empty()
        answers.shared = SharedAnswer(delivery.recipients, answer.header, answer.size, spent)
        return answers

    def _each(self, delivery: Delivery, handle: Handle) -> HostAnswers:
        answers = HostAnswers.silent(delivery.recipients)
        for position, number in enumerate(delivery.recipients.tolist()):
            # Before the meter starts: making the object and catching up are the testbed's work, not the client's.
            client = self.client(number)
            # `begin_round` resets these clients only; a population may have millions of idle ones.
            self._active.add(number)
            if delivery.kind.announces:
                last_announced = delivery.last_announced
                client.last_announced = delivery.key[0] - 1 if last_announced is None else int(last_announced[position])
            with metered() as meter:
                began = thread_cpu_s()
                detached = self._answer(delivery, client, handle, answers)
                spent = thread_cpu_s() - began
            answers.compute_s[position] = self.environment.compute.seconds(meter, spent)
            answers.pki_up[position] = meter.pki_bytes_up
            answers.pki_down[position] = meter.pki_bytes_down
            answers.attacks += [(number, line) for line in client.attacks]
            client.attacks.clear()
            if answers.crashes and self._on_crash == "stop":
                break
            if detached is None:
                continue
            answers.answered[position] = True
            answers.sizes[position] = detached.size
            answers.headers[number] = detached.header
            if detached.vectors:
                self._vectors.setdefault(delivery.key, {})[number] = detached.vectors[0]
        return answers

    def _answer(
        self,
        delivery: Delivery,
        client: Client,
        handle: Handle,
        answers: HostAnswers,
    ) -> Detached | None:
        """Return the client's answer; None if it stays silent or its code has crashed."""
        private: Message | None = None
        try:
            if delivery.private is not None and delivery.kind.Private is not None:
                private = decode(delivery.kind.Private, delivery.private[client.number])
            answer = handle(client, private)
            return None if answer is None else detach(answer)
        except Refusal as refusal:
            check, detail = refusal.check, refusal.detail
        except ProtocolError as error:
            check, detail = "message.malformed", str(error)
        except BdbQuit as error:  # somebody has left the debugger: that stops the run, as Ctrl-C does
            raise KeyboardInterrupt from error
        except BaseException as error:
            if self._on_crash == "raise" or not is_crash(error) or isinstance(error, RunError):
                raise  # a lost client state is no bug of the client's code
            answers.crashes.append(Crash.of(client.number, error))
            return None
        answers.refusals.append(ClientRefusal(client.number, check, detail))
        # Cut to the limits of the fields: the server does not decode a longer refusal.
        return detach(RefusalNotice(check[:100], detail[:500]))

    def total(self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None) -> tuple[Sum, float]:
        """Sum of this host's vectors of stage `key`, and CPU seconds.

        Raises `RoundAborted` when a client has sent none, or one of another shape.
        """
        began = thread_cpu_s()
        stored = self._vectors.get(key, {})
        # A malicious answer may lack its vector. `Replies` cannot notice it: the server decodes headers alone.
        without = [number for number in clients.tolist() if number not in stored]
        if without:
            raise RoundAborted("no-vector", f"client {without[0]} was to send a vector")
        vectors = [stored[number] for number in clients.tolist()]
        bits = vectors[0].bits
        if any(vector.bits != bits or len(vector) != len(vectors[0]) for vector in vectors):
            raise RoundAborted("different-vectors", "clients sent vectors of different shapes")
        if vectors[0].is_float:
            shares = weights if weights is not None else np.ones(len(vectors), np.int64)
            summed = float_total(vectors, shares.tolist())
        else:
            summed = ring_total(vectors)
        return summed, thread_cpu_s() - began

    def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, Vector]:
        """Single vectors that clients answered at stage `key`."""
        return {number: self._vectors[key][number] for number in clients.tolist()}


def _raising(error: BaseException) -> Handle:
    where = error.__traceback__

    def handle(client: Client, private: Message | None) -> Message | None:
        raise error.with_traceback(where)

    return handle


# -- hosts in this process ---------------------------------------------------------------------------------------------


Result = TypeVar("Result")

REGISTERED_AT_ONCE = 4096
"""Number of clients of a host that register together: their key pairs are in memory at the same time."""


class LocalHosts:
    """One or more hosts in this process; several hosts run in parallel threads.

    Clients of different hosts share no mutable state in a round, except through the workload. With several hosts its
    `train` is called from several threads (the built-in workloads then train one client after another), and must depend
    on its arguments alone. Results do not depend on the number of hosts.

    Args:
        population: number of clients n.
        environment: settings shared by the clients.
        roles: the protocols' client sides.
        hosts: number of hosts.
        last_round: see `Host`.
        on_crash: see `Host`.
    """

    def __init__(
        self,
        population: int,
        environment: Environment,
        roles: Sequence[RoleSpec],
        *,
        hosts: int = 1,
        last_round: int = 0,
        on_crash: OnCrash = "raise",
    ) -> None:
        self.environment = environment
        self.hosts = [
            Host(owned_by(host, hosts, population), environment, roles, last_round=last_round, on_crash=on_crash)
            for host in range(hosts)
        ]

    def register(self, pki: PKI) -> None:
        """Register every client with the PKI and read its bulletin board."""
        for host in self.hosts:
            for first in range(0, len(host.numbers), REGISTERED_AT_ONCE):
                senders = host.numbers[first : first + REGISTERED_AT_ONCE]
                host.accept_registrations(pki.register_many(host.registrations(first, REGISTERED_AT_ONCE), senders))
        self.environment.directory = pki.directory()

    async def begin_round(self, round_number: int) -> None:
        for host in self.hosts:
            host.begin_round()

    async def deliver(self, delivery: Delivery) -> HostAnswers:
        parts = split(delivery, len(self.hosts))
        work = [functools.partial(host.deliver, part) for host, part in zip(self.hosts, parts, strict=True)]
        return HostAnswers.merged(await self._everywhere(work))

    async def total(
        self, key: tuple[int, int], clients: Ids, weights: npt.NDArray[np.int64] | None
    ) -> tuple[Sum, float]:
        work = []
        for position, host in enumerate(self.hosts):
            here, shares = chosen_on(position, len(self.hosts), clients, weights)
            if len(here):
                work.append(functools.partial(host.total, key, here, shares))
        if not work:
            raise Refusal("sum.empty", "there are no clients to sum over")
        parts = await self._everywhere(work)
        return merged(summed for summed, _ in parts), sum(cpu_s for _, cpu_s in parts)

    async def vectors(self, key: tuple[int, int], clients: Ids) -> dict[int, Vector]:
        vectors: dict[int, Vector] = {}
        for position, host in enumerate(self.hosts):
            vectors.update(host.vectors(key, chosen_on(position, len(self.hosts), clients, None)[0]))
        return vectors

    async def _everywhere(self, work: Sequence[Callable[[], Result]]) -> list[Result]:
        if len(work) == 1:
            # In this thread, so that a debugger and stack traces show the client's code directly.
            return [work[0]()]
        return list(await asyncio.gather(*(asyncio.to_thread(call) for call in work)))
