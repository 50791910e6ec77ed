"""Exact linear algebra on a server's observations; uses none of the product's unmasking code.

A masked input is y = x + sum of +-masks. Masks with known seeds are removed. The others are independent and uniform, so
the server can compute exactly the linear combinations of inputs in which they cancel. Every unknown mask is in one
input (which it hides), or in the inputs of its two clients with opposite signs: the matrix is that of a graph's edges
and ends, totally unimodular, so counting modulo a large prime instead of the ring 2**bits misses nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from testbed.aggregation.secagg.parameters import SecAggParameters
from testbed.crypto.masks import mask as expansion
from tests.search.knowledge import Input, Knowledge, Mask, Update, ring

FIELD = 2**61 - 1
Vector = list[int]


@dataclass(frozen=True)
class Combination:
    """A combination that the server can compute.

    Attributes:
        coefficients: by input (its index in `Knowledge.inputs`), not 0.
        updates: the updates in it, with their multiplicity.
    """

    coefficients: Mapping[int, int]
    updates: Mapping[Update, int]


def nullspace(rows: Sequence[Mapping[object, int]]) -> list[Vector]:
    """Return a basis, in reduced form, of all combinations of the sparse `rows` that are zero modulo the prime."""
    columns = sorted({column for row in rows for column in row}, key=repr)
    count = len(rows)
    work = [
        [row.get(column, 0) % FIELD for column in columns] + [int(place == own) for place in range(count)]
        for own, row in enumerate(rows)
    ]
    done = _reduce(work, len(columns))
    basis = [row[len(columns) :] for row in work[done:]]
    kept = _reduce(basis, count)
    return basis[:kept]


def _reduce(rows: list[Vector], columns: int) -> int:
    """Bring `rows` to reduced row echelon form in place over their first `columns`; return the rank."""
    rank = 0
    for column in range(columns):
        pivot = next((place for place in range(rank, len(rows)) if rows[place][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        inverse = pow(rows[rank][column], -1, FIELD)
        rows[rank] = [value * inverse % FIELD for value in rows[rank]]
        for place, row in enumerate(rows):
            if place != rank and row[column]:
                factor = row[column]
                rows[place] = [(a - factor * b) % FIELD for a, b in zip(row, rows[rank], strict=True)]
        rank += 1
    return rank


def unknown_masks(knowledge: Knowledge, inputs: Sequence[Input]) -> list[dict[Mask, int]]:
    """Return the masks of each input that the server cannot compute."""
    private = knowledge.private_keys()
    seeds = knowledge.seeds([one.update for one in inputs])
    rows = []
    for one in inputs:
        hidden = {}
        for mask, sign in one.masks.items():
            known = mask.second in seeds if mask.first == "self" else mask.first in private or mask.second in private
            if not known:
                hidden[mask] = sign
        rows.append(hidden)
    return rows


def derivable(knowledge: Knowledge, round_number: int) -> list[Combination]:
    """Return a basis of the combinations that the server can compute from one round's inputs."""
    inputs = [one for one in knowledge.inputs if one.update.round == round_number]
    if not inputs:
        return []
    places = [place for place, one in enumerate(knowledge.inputs) if one.update.round == round_number]
    return [
        _combination(knowledge, dict(zip(places, vector, strict=True)))
        for vector in nullspace(unknown_masks(knowledge, inputs))
    ]


def _combination(knowledge: Knowledge, coefficients: Mapping[int, int]) -> Combination:
    signed = {place: value if value < FIELD // 2 else value - FIELD for place, value in coefficients.items() if value}
    updates: dict[Update, int] = {}
    for place, value in signed.items():
        update = knowledge.inputs[place].update
        updates[update] = updates.get(update, 0) + value
    return Combination(signed, {update: value for update, value in updates.items() if value})


def smallest(basis: Sequence[Combination], known: Collection[Update], below: int) -> Combination | None:
    """Return a combination with at least one and fewer than `below` updates unknown to the server, or None.

    Enumerates the possible sets.
    """
    unknown = sorted({update for one in basis for update in one.updates} - set(known))
    rows = [[one.updates.get(update, 0) % FIELD for update in unknown] for one in basis]
    for size in range(1, below):
        for within in combinations(range(len(unknown)), size):
            outside = [{column: row[column] for column in range(len(unknown)) if column not in within} for row in rows]
            for vector in nullspace(outside):
                there = [sum(a * row[column] for a, row in zip(vector, rows, strict=True)) % FIELD for column in within]
                if any(there):
                    return _sum(basis, vector)
    return None


def _sum(basis: Sequence[Combination], vector: Vector) -> Combination:
    coefficients: dict[int, int] = {}
    updates: dict[Update, int] = {}
    for factor, one in zip(vector, basis, strict=True):
        for found, source in ((coefficients, one.coefficients), (updates, one.updates)):
            for key, value in source.items():
                found[key] = (found.get(key, 0) + factor * value) % FIELD

    def signed(of: Mapping[object, int]) -> dict[object, int]:
        return {key: value if value < FIELD // 2 else value - FIELD for key, value in of.items() if value}

    return Combination(signed(coefficients), signed(updates))


def carried_out(knowledge: Knowledge, combination: Combination) -> bool:
    """Return whether the combination, computed from the bytes, equals that of the updates without masks."""
    private = knowledge.private_keys()
    seeds = knowledge.seeds(list(combination.updates))
    computed: object = 0
    truth: object = 0
    bits = 64
    for place, factor in combination.coefficients.items():
        one = knowledge.inputs[place]
        bits, length = one.bits, len(one.vector)
        value = ring(one.vector, bits)
        for mask, sign in one.masks.items():
            seed = None
            if mask.first == "self":
                seed = seeds.get(mask.second)
            elif mask.first in private:
                seed = private[mask.first].agree(mask.second, SecAggParameters().mask_purpose)
            elif mask.second in private:
                seed = private[mask.second].agree(mask.first, SecAggParameters().mask_purpose)
            if seed is not None:
                expanded = ring(expansion(seed, length, bits), bits)
                value = value - expanded if sign > 0 else value + expanded
        computed = computed + np.uint64(factor % 2**64) * value
        truth = truth + np.uint64(factor % 2**64) * ring(one.plain, bits)
    return bool(np.array_equal(ring(computed, bits), ring(truth, bits)))
