"""Time of one participant's verification of the participant list: client-centric Lotto, 70 proofs.

    python -m benchmarks.participant_list
    python -m benchmarks.participant_list --participants 200

Timed is the client's real handler (`LottoClient.on_list`): every registration key is looked up at the PKI's board,
every number compared with the threshold, every proof but the client's own verified, and the list signed. Keys, proofs
and the board are real. Proofs are verified on all cores, as where compute time is modelled, and each for the first
time. Target: at most 12 ms for 70. The floor is as many Ed25519 verifications by pyca/cryptography
(OpenSSL) and one signature, in turn with it, in the same process.
"""

import statistics
import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.report import arguments, emit
from testbed.crypto.remembered import Results, remembers
from testbed.emulation.compute.cost import REFERENCE_COSTS, ComputeModel
from testbed.parties.client import Client, Environment
from testbed.parties.host import LocalHosts
from testbed.parties.pki import PKI, Directory
from testbed.randomness import Randomness
from testbed.selection.lotto.messages import Announce, Candidacy, ParticipantEntry, ParticipantList
from testbed.selection.lotto.variants import ClientCentricClient, ClientCentricParameters

EXPERIMENT_ID = bytes(16)
TARGET_MS = 12.0


class Parties:
    """Registered clients, all of them candidates (n = s), and their list.

    Args:
        participants: s.
        rounds: how often the list can be shown: a round number serves once.
    """

    def __init__(self, participants: int, rounds: int) -> None:
        self.parameters = ClientCentricParameters(participants=participants)
        randomness = Randomness(1)
        environment = Environment(
            population=participants,
            randomness=randomness,
            compute=ComputeModel(False, REFERENCE_COSTS),
            directory=Directory.empty(0),
            experiment_id=EXPERIMENT_ID,
            rounds=rounds,
        )
        self.hosts = LocalHosts(participants, environment, [])
        self.hosts.register(PKI(participants, randomness))

    def _client(self, number: int) -> Client:
        return self.hosts.hosts[0].client(number)

    def seconds(self, round_number: int) -> tuple[float, float]:
        """Wall and CPU seconds that the first participant takes for the list of this round."""
        factor, s = self.parameters.factor, self.parameters.participants
        announced = Announce(round_number, s, s, factor.numerator, factor.denominator)
        roles = [ClientCentricClient(self._client(number), self.parameters) for number in range(s)]  # new in each round
        entries = []
        for role in roles:
            role.client.last_announced = round_number - 1  # as a host says
            claim = role.on_announce(announced)
            assert isinstance(claim, Candidacy)
            assert claim.output is not None
            assert claim.proof is not None
            key = self.hosts.environment.directory.signing_key(role.client.number)
            entries.append(ParticipantEntry(role.client.number, key, claim.output, claim.proof))
        message = ParticipantList(round_number, s, entries)
        began, cpu = time.perf_counter(), time.process_time()
        with remembers(Results()):  # nothing is known yet; it also lets proofs be verified on all cores
            roles[0].on_list(message)
        return time.perf_counter() - began, time.process_time() - cpu


def floor_seconds(count: int) -> float:
    """Seconds of `count` verifications of Ed25519 signatures and one signature."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    public, content = key.public_key(), bytes(42)
    signature = key.sign(content)
    began = time.perf_counter()
    for _ in range(count):
        public.verify(signature, content)
    key.sign(content)
    return time.perf_counter() - began


def main() -> None:
    """Run the benchmark from the command line."""
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--participants", type=int, default=70, help="s, proofs in the list")
    parser.add_argument("--repeat", type=int, default=30, help="lists; the median counts")
    options = parser.parse_args()
    parties = Parties(options.participants, options.repeat)
    measured = [
        (*parties.seconds(number), floor_seconds(options.participants - 1)) for number in range(1, options.repeat + 1)
    ]
    seconds, cpu_s, floor_s = (statistics.median(part) for part in zip(*measured, strict=True))
    result = {
        "seconds": seconds, "floor_seconds": floor_s, "ratio": seconds / floor_s, "ms": 1e3 * seconds,
        "cpu_ms": 1e3 * cpu_s, "fastest_ms": 1e3 * min(row[0] for row in measured), "target_ms": TARGET_MS,
        "proofs": options.participants,
    }  # fmt: skip
    emit(result, [], options.format == "json")


if __name__ == "__main__":
    main()
