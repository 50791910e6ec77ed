"""Fully linear proofs: Boneh, Boyle, Corrigan-Gibbs, Gilboa, Ishai, CRYPTO 2019 (eprint 2019/188), theorem 4.3.

As `FlpBBCGGI19` of draft-irtf-cfrg-vdaf, section 7.3 (up to version 12: a proof holds coefficients).

A circuit calls one gadget of degree 2 many times, on inputs that are affine in the measurement, and outputs a value
that is zero for a valid measurement. The prover interpolates each wire of the gadget over its calls, with a random
value at the first root of unity, and its proof is the gadget applied to these polynomials. A verifier holds a share of
all of this: it evaluates the polynomials at a random point and obtains shares of values that must satisfy the gadget.
The verifier errs with probability 2 (p - 1) / `field64.PRIME`, with p the next power of two above the number of calls,
if the prover does not know the point.
"""

from typing import Protocol

import numpy as np

from testbed.crypto import InvalidProof, field64
from testbed.crypto.field64 import PRIME, Elements


class Gadget(Protocol):
    """A polynomial of degree 2.

    Attributes:
        arity: number of inputs.
    """

    @property
    def arity(self) -> int: ...

    def __call__(self, inputs: Elements) -> Elements:
        """Return its values, `(n,)`, for `(n, arity)` inputs."""


class Circuit(Protocol):
    """A function that is zero for valid measurements.

    Attributes:
        gadget: the only gadget.
        calls: number of calls of the gadget.
    """

    @property
    def gadget(self) -> Gadget: ...

    @property
    def calls(self) -> int: ...

    def inputs(self, measurement: Elements, joint: Elements, shares: int) -> Elements:
        """Return the inputs of the gadget, `(calls, arity)`; for a share of the measurement, a share of the inputs.

        Args:
            measurement: or one of `shares` shares of it.
            joint: joint randomness.
            shares: number of shares.
        """

    def output(self, measurement: Elements, joint: Elements, outputs: Elements, shares: int) -> int:
        """Return the value that must be zero; for a share, a share of the value.

        Args:
            measurement: or one of `shares` shares of it.
            joint: joint randomness.
            outputs: `(calls,)` outputs of the gadget.
            shares: number of shares.
        """


class Products:
    """Sums of products: `ParallelSum(Mul)`, or `Mul` for one product (draft-irtf-cfrg-vdaf, section 7.3.2).

    Args:
        count: number of products; inputs are the first factor, the second factor, the next product's first, and so on.
    """

    def __init__(self, count: int) -> None:
        self.arity = 2 * count

    def __call__(self, inputs: Elements) -> Elements:
        return field64.total(field64.multiply(inputs[:, 0::2], inputs[:, 1::2]), axis=1)


class Squares:
    """Sums of squares: `ParallelSum(PolyEval(x**2))`.

    Args:
        count: number of squares.
    """

    def __init__(self, count: int) -> None:
        self.arity = count

    def __call__(self, inputs: Elements) -> Elements:
        return field64.total(field64.multiply(inputs, inputs), axis=1)


def points(circuit: Circuit) -> int:
    """Return the number of points over which a wire's polynomial is interpolated."""
    return 1 << circuit.calls.bit_length()  # above the number of calls: the first root has the random value


def prove_rand_length(circuit: Circuit) -> int:
    """Return the number of random elements that a proof takes."""
    return circuit.gadget.arity


def proof_length(circuit: Circuit) -> int:
    """Return the number of elements of a proof."""
    return circuit.gadget.arity + 2 * points(circuit) - 1  # a polynomial of degree 2 (p - 1)


def verifier_length(circuit: Circuit) -> int:
    """Return the number of elements that a verifier sends to the others."""
    return circuit.gadget.arity + 2  # the output, the wires and the gadget's polynomial at the point


def prove(circuit: Circuit, measurement: Elements, prove_rand: Elements, joint: Elements) -> Elements:
    """Return the proof, `(proof_length,)`.

    Args:
        circuit: the statement.
        measurement: as the circuit takes it.
        prove_rand: `(prove_rand_length,)` uniform and secret.
        joint: random elements that the circuit takes.
    """
    wires = _wires(circuit, measurement, prove_rand, joint, 1)
    values = np.empty((2 * len(wires), 1), np.uint64)
    # The polynomial of degree 2 (p - 1) needs 2 p - 1 values: at the p-th roots of unity and at the roots between them.
    values[0::2, 0] = circuit.gadget(wires)
    values[1::2, 0] = circuit.gadget(field64.at_points_between(wires))
    # The last of the 2 p coefficients is zero.
    return np.concatenate([prove_rand, field64.inverse_transform(values)[:-1, 0]])


def query(
    circuit: Circuit, measurement: Elements, proof: Elements, point: int, joint: Elements, shares: int
) -> Elements:
    """Return the message of a verifier with one share of measurement and proof, `(verifier_length,)`.

    Args:
        circuit: the statement.
        measurement: share of the measurement.
        proof: share of the proof.
        point: the same for all verifiers, unknown to the prover.
        joint: random elements that the circuit takes.
        shares: number of verifiers.

    Raises:
        InvalidProof: the point is a root of unity, where a wire would reveal an input.
    """
    arity, p = circuit.gadget.arity, points(circuit)
    if pow(point, p, PRIME) == 1:
        raise InvalidProof("the proof is queried at a point that would show an input")
    wires = _wires(circuit, measurement, proof[:arity], joint, shares)
    coefficients = proof[arity:]
    # Modulo x**p - 1 the polynomial has the same values at the p-th roots, and half the length.
    folded = coefficients[:p, None].copy()
    folded[: p - 1, 0] = field64.add(folded[: p - 1, 0], coefficients[p:])
    outputs = field64.transform(folded)[1 : circuit.calls + 1, 0]
    output = circuit.output(measurement, joint, outputs, shares)
    at_point = field64.total(field64.multiply(wires, _lagrange(p, point)[:, None]))
    value = field64.total(field64.multiply(coefficients, field64.powers(point, len(coefficients))))
    return np.concatenate([np.array([output], np.uint64), at_point, value[None]])


def decide(circuit: Circuit, verifier: Elements) -> bool:
    """Return whether the measurement is valid.

    Args:
        circuit: the statement.
        verifier: `(verifier_length,)` sum of all verifiers' messages.
    """
    # The output follows from the proof's polynomial; only the second test ties this polynomial to the wires.
    return int(verifier[0]) == 0 and int(circuit.gadget(verifier[None, 1:-1])[0]) == int(verifier[-1])


def _wires(circuit: Circuit, measurement: Elements, seeds: Elements, joint: Elements, shares: int) -> Elements:
    """Return the wires' values at the p-th roots of unity, `(p, arity)`."""
    wires = np.zeros((points(circuit), circuit.gadget.arity), np.uint64)
    # A random value hides the inputs in the wires' values at the query point.
    wires[0] = seeds
    wires[1 : circuit.calls + 1] = circuit.inputs(measurement, joint, shares)
    return wires


def _lagrange(p: int, point: int) -> Elements:
    """Return the Lagrange polynomials of the p-th roots of unity at another point, `(p,)`."""
    root, scale = field64.root_of_unity(p), (pow(point, p, PRIME) - 1) * pow(p, -1, PRIME)
    values, power = [], 1
    for _ in range(p):
        values.append(power * scale * pow(point - power, -1, PRIME) % PRIME)
        power = power * root % PRIME
    return np.array(values, np.uint64)
