"""The tree of sums: everything is added exactly once, and one vector leaves each node."""

from hypothesis import given
from hypothesis import strategies as st

from cluster.hosts.placement import FAN_IN, tree


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.data())
def test_every_sum_is_added_once_and_few_reach_the_coordinator(nodes: list[int], data: st.DataObject) -> None:
    node_of = [f"node{number}" for number in nodes]
    holders = data.draw(st.lists(st.sampled_from(range(len(nodes))), min_size=1, unique=True).map(sorted))
    levels, left = tree(holders, node_of, "node0")
    held = {host: {host} for host in holders}
    for level in levels:
        taken: set[int] = set()
        for merge in level:
            assert merge.at == merge.of[0]
            assert not taken & set(merge.of)  # nobody is in two merges that go on at the same time
            taken |= set(merge.of)
            held[merge.at] = set().union(*(held.pop(host) for host in merge.of))
    assert sorted(held) == sorted(left)
    assert len(left) <= FAN_IN
    assert sorted(host for group in held.values() for host in group) == holders


def test_hosts_of_one_node_are_merged_before_they_travel_and_the_coordinators_own_are_not() -> None:
    levels, left = tree([0, 1, 2, 3, 4], ["head", "head", "far", "far", "far"], "head")
    assert [[merge.of for merge in level] for level in levels] == [[(2, 3, 4)]]
    assert left == [0, 1, 2]


def test_nodes_are_merged_in_groups_when_they_are_many() -> None:
    levels, left = tree(list(range(200)), [f"node{host // 2}" for host in range(200)], "head")
    assert [len(level) for level in levels] == [100, 13, 2]
    assert len(left) == 2
    assert max(len(merge.of) for level in levels for merge in level) <= FAN_IN
