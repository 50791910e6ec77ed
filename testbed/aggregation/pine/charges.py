"""Compute costs of the work on reports (`testbed.emulation.compute.cost`)."""

from testbed.crypto import linear_proofs
from testbed.crypto.field64 import ELEMENT_BYTES
from testbed.crypto.pine import SHARES, PineVdaf
from testbed.emulation.compute.cost import meter


def charge_shard(vdaf: PineVdaf) -> None:
    """Charge a client for expanding the helper's shares, hashing both shares twice, the products, and the proofs."""
    size = vdaf.measurement_length
    rand = sum(map(linear_proofs.prove_rand_length, vdaf.proven))
    meter("xof.byte", ELEMENT_BYTES * (size + vdaf.proofs_length + rand) + vdaf.entries_bytes)
    meter("sha256.byte", 2 * SHARES * ELEMENT_BYTES * size)
    meter("field64.add", size + vdaf.proofs_length)
    meter("ternary.element", vdaf.checks * vdaf.dimension)
    for circuit in vdaf.proven:
        points = linear_proofs.points(circuit)
        wires, levels = points * circuit.gadget.arity, points.bit_length() - 1
        meter("field64.multiply", wires * (levels + 2))  # two transforms, a twist, and two evaluations
        meter("field64.add", 2 * wires * levels)
    meter("field64.multiply", vdaf.dimension)  # the squared norm


def charge_prepare(vdaf: PineVdaf, aggregator: int) -> None:
    """Charge an aggregator for expanding shares (helper only), hashing a share twice, the products, and the queries.

    Args:
        vdaf: of the report.
        aggregator: 0: leader; 1: helper.
    """
    size = vdaf.measurement_length
    expanded = size + vdaf.proofs_length if aggregator else 0
    meter("xof.byte", ELEMENT_BYTES * expanded + vdaf.entries_bytes)
    meter("sha256.byte", 2 * ELEMENT_BYTES * size)
    meter("ternary.element", vdaf.checks * vdaf.dimension)
    for circuit in vdaf.proven:
        wires = linear_proofs.points(circuit) * circuit.gadget.arity
        meter("field64.multiply", wires)
        meter("field64.add", wires)


def charge_combine(vdaf: PineVdaf) -> None:
    """Charge an aggregator for deciding whether a report is valid, from both prepared shares."""
    for circuit in vdaf.proven:
        meter("field64.multiply", circuit.gadget.arity)
        meter("field64.add", linear_proofs.verifier_length(circuit))
