"""PINE of draft-chen-cfrg-vdaf-pine-01: the shipped function with the draft's derivations of two seeds.

With it the draft's vectors check the shipped arithmetic. Only the inputs of the two seeds differ.
"""

from functools import cached_property
from typing import Any

import numpy as np

from testbed.crypto.field64 import Elements
from testbed.crypto.linear_proofs import Products
from testbed.crypto.pine import PineVdaf
from testbed.crypto.pine_circuits import NormEquality, RemainingChecks
from testbed.crypto.ternary_products import ternary_products

_JOINT_SEED, _WRAPAROUND_SEED = 6, 9


class DraftPine(PineVdaf):
    """The function of the draft's repository since 4f24d76 of 12 September 2024."""

    def _wraparound_seed(self, parts: list[bytes]) -> bytes:
        return self._seed(_WRAPAROUND_SEED, parts)

    def _joint_seed(self, parts: list[bytes]) -> bytes:
        return self._seed(_JOINT_SEED, parts[2:])


class OlderDraftPine(DraftPine):
    """The function of the draft's repository at 81808e4 of 12 August 2024, for the other published vector."""

    @property
    def _proof_counts(self) -> bytes:
        return bytes([self.proofs])  # the number of proofs of the norm was bound later

    @cached_property
    def circuits(self) -> tuple[NormEquality, RemainingChecks]:
        norm, _ = super().circuits
        older = NormOfProducts(
            norm.dimension, norm.norm_bound, norm.chunk, norm.checks, norm.check_bound, norm.successes
        )
        return older, RemainingChecks(older, self.chunk)

    def _products(self, vector: Any, bits: int, seed: bytes) -> list[int]:
        entries = np.frombuffer(bytes(self.xof(seed, self._domain(8)).read(self.entries_bytes)), np.uint8)
        highest_first = (entries & 3) << 6 | (entries & 12) << 2 | (entries & 48) >> 2 | (entries & 192) >> 6
        return ternary_products(vector, bits, highest_first.tobytes(), self.checks)


class NormOfProducts(NormEquality):
    """Norm of the older vector, made before squares had their own gadget: x x is a product there."""

    @cached_property
    def gadget(self) -> Any:
        return Products(self.chunk)

    def inputs(self, measurement: Elements, joint: Elements, shares: int) -> Elements:
        return np.repeat(super().inputs(measurement, joint, shares), 2, axis=1)
