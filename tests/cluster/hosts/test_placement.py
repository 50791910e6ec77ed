"""How many hosts there are, and where they go."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.hosts.placement import (
    Node,
    Place,
    alive_nodes,
    hosts_for,
    living_nodes,
    replacement,
    runs_at_a_time,
    spread,
)
from testbed.errors import ClusterError
from testbed.experiment.sections import Cluster

GIB = 2**30


def test_hosts_for_takes_a_number_a_density_or_the_cpus() -> None:
    assert hosts_for(Cluster(hosts=7), 100, 2, 1) == 7
    assert hosts_for(Cluster(hosts=7), 3, 2, 1) == 3
    assert hosts_for(Cluster(), 100, 16, 1) == 16
    assert hosts_for(Cluster(), 100, 16, 4) == 4
    assert hosts_for(Cluster(), 100, 2, 5) == 1
    assert hosts_for(Cluster(clients_per_host=30), 100, 2, 1) == 4


def test_runs_at_a_time_is_bounded_by_points_cpus_and_memory() -> None:
    assert runs_at_a_time(Cluster(), 10, 2, 64 * GIB) == 2
    assert runs_at_a_time(Cluster(), 10, 16, 64 * GIB) == 10
    assert runs_at_a_time(Cluster(), 3, 16, 64 * GIB) == 3
    assert runs_at_a_time(Cluster(), 10, 16, 9 * GIB) == 3
    assert runs_at_a_time(Cluster(), 10, 16, 0) == 1
    assert runs_at_a_time(Cluster(), 10, 1, 64 * GIB) == 1
    assert runs_at_a_time(Cluster(hosts=8), 10, 16, 64 * GIB) == 2
    assert runs_at_a_time(Cluster(parallel_runs=2), 10, 1, 0) == 2
    assert runs_at_a_time(Cluster(parallel_runs=9), 4, 1, 0) == 4


def test_hosts_go_where_there_is_most_room() -> None:
    nodes = [Node("big", 4), Node("head", 0), Node("small", 2)]
    counts = [place.node_id for place in spread(nodes, 6)]
    assert (counts.count("big"), counts.count("small"), counts.count("head")) == (4, 2, 0)
    assert all(place.cpus == pytest.approx(0.99) for place in spread(nodes, 6))
    crowded = spread(nodes, 12)
    assert sum(place.cpus for place in crowded if place.node_id == "big") <= 4
    assert [place.node_id for place in spread([Node("head", 0)], 2)] == ["head", "head"]


@given(
    st.lists(st.tuples(st.integers(0, 64), st.integers(0, 8)), min_size=1, max_size=6),
    st.integers(1, 40),
)
def test_reservations_of_hosts_fit_on_every_node(sizes: list[tuple[int, int]], hosts: int) -> None:
    nodes = [Node(f"n{number}", cpus, gpus) for number, (cpus, gpus) in enumerate(sizes)]
    places = spread(nodes, hosts)
    assert len(places) == hosts
    for node in nodes:
        here = [place for place in places if place.node_id == node.node_id]
        if node.cpus:
            assert sum(place.cpus for place in here) <= node.cpus
        if here and node.gpus:
            share = here[0].gpus
            assert share > 0
            whole = int(node.gpus // share) if share >= 1 else int(node.gpus) * int(1 / share)
            assert whole >= len(here)  # shares do not stretch over two GPUs


def test_gpus_that_no_node_has_are_refused_at_once() -> None:
    nodes = [Node("cpu", 8), Node("gpu", 2, 1)]
    assert {place.node_id for place in spread(nodes, 4, 0.25)} == {"gpu"}
    for hosts, share in ((5, 0.25), (1, 2), (2, 0.6)):
        with pytest.raises(ClusterError, match="gpus_per_host"):
            spread(nodes, hosts, share)
    both = spread([Node("a", 8, 1), Node("b", 2, 2)], 3, 1)
    assert sorted(place.node_id for place in both) == ["a", "b", "b"]


def test_a_lost_host_goes_back_to_its_node_or_to_the_emptiest() -> None:
    lost, others = Place("a", 0.99, 0), [Place("b", 0.99, 0), Place("b", 0.99, 0), Place("c", 0.99, 0)]
    assert replacement([Node("a", 1), Node("b", 8)], lost, others).node_id == "a"
    assert replacement([Node("b", 4), Node("c", 4)], lost, others).node_id == "c"
    assert replacement([Node("b", 4), Node("c", 4)], lost, others).cpus == 0
    gpu = Place("a", 0.99, 0.5)
    assert replacement([Node("b", 4, 1), Node("c", 4)], gpu, others).node_id == "b"


def test_a_node_that_does_not_answer_is_passed_over_unless_all_are_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as gone:
        ports = {"here": server.getsockname()[1], "gone": gone.getsockname()[1]}
        gone.close()
        table = {
            name: {
                "NodeID": name, "Alive": True, "Resources": {"CPU": 1.0},
                "NodeManagerAddress": "127.0.0.1", "NodeManagerPort": port,
            }
            for name, port in ports.items()
        }  # fmt: skip
        assert [node.node_id for node in living_nodes(table.values())] == ["here"]
        assert [node.node_id for node in living_nodes([table["gone"]])] == ["gone"]


def test_dead_nodes_are_not_counted() -> None:
    where = {"NodeManagerAddress": "192.0.2.2", "NodeManagerPort": 7}
    table = [
        {"NodeID": "z", "Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}, **where},
        {"NodeID": "y", "Alive": False, "Resources": {}, **where},
        {"NodeID": "a", "Alive": True, "Resources": {}, **where},
    ]
    address = ("192.0.2.2", 7)
    assert alive_nodes(table) == [Node("a", 0.0, 0.0, address), Node("z", 2.0, 1.0, address)]
