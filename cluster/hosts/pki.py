"""The Ray actor of the PKI; a module of its own, so that its process starts without the imports of hosts."""

from testbed.arrays import Ids
from testbed.parties.pki import PKI, Directory
from testbed.randomness import Randomness


class PKIActor:
    """Ray actor: the PKI, which the hosts' clients reach without going through the coordinator."""

    def __init__(self) -> None:
        self._pki: PKI | None = None

    def prepare(self, population: int, randomness: Randomness) -> None:
        """Start with an empty key directory."""
        self._pki = PKI(population, randomness)

    def register_many(self, requests: list[bytes], senders: Ids) -> list[bytes]:
        """Return `PKI.register_many`."""
        assert self._pki is not None, "the PKI was not prepared"
        return self._pki.register_many(requests, senders)

    def directory(self) -> Directory:
        """Return `PKI.directory`."""
        assert self._pki is not None, "the PKI was not prepared"
        return self._pki.directory()

    def alive(self) -> None:
        """Do nothing: a call fails if this actor is dead."""
