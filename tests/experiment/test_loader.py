"""Invalid experiments: one line per mistake, with file, key path and allowed values."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from testbed.aggregation.flamingo.parameters import FlamingoParameters
from testbed.errors import ExperimentError
from testbed.experiment import load
from testbed.experiment.schema import Experiment, check_stages, known_stages, stages_of, validated
from testbed.experiment.sections import AggregationSection, SelectionSection
from testbed.messages import Message

PROTOCOLS = (
    "'random', 'weighted-random', 'bernoulli', 'partition', 'batch-partition', 'oort', 'lotto-client-centric', "
    "'lotto-server-centric', 'verifiable-batch-partition', 'min-separation', 'balls-in-bins'"
)


# -- keys and values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ruonds: 3", "ruonds: unknown key; did you mean 'rounds'? allowed: adversary, aggregation, asynchronous, "),
        (
            "aggregation: {protocol: flamingo, committee.size: 10}",
            "aggregation.committee.size: unknown key; keys with dots are for --set and sweep; in a file, nest it: "
            "committee: {size: ...}; allowed: ",
        ),
        ("time.deadline_s: 3", "time.deadline_s: unknown key; keys with dots are for --set and sweep; in a file, "),
        ("zzz: 3", "zzz: unknown key; allowed: adversary, aggregation, asynchronous, "),
        ("1: 3", "1: unknown key; allowed: "),
        ("links: {latency: 3}", "links.latency: unknown key; did you mean 'latency_ms'? allowed: buffer_ms, down_"),
        ("availability: {dropout: {rat: 3}}",
         "availability.dropout.rat: unknown key; did you mean 'rate'? allowed: hazard, rate, stage"),
        ("selection: {particpants: 3}",
         "selection.particpants: unknown key; did you mean 'participants'? allowed: participants, protocol"),
        ("selection: {protocol: lotto-client-centric, n_min: 3}",
         "selection.n_min: unknown key; allowed: beacon_latency_ms, max_round_gap, min_population, "
         "over_selection, participants, protocol, refine, round_beacon, server_verifies, signatures, unselected"),
        ("selection: {protocol: lotto-server-centric, refine: {exclud: 0.1}}",
         "selection.refine.exclud: unknown key; did you mean 'exclude'? allowed: by, combine, exclude"),
        ("selection: {protocol: randm}",
         f"selection.protocol: unknown protocol 'randm'; did you mean 'random'? allowed: {PROTOCOLS}, "
         "or package.module:Class"),
        ("selection: {protocol: 7}", f"selection.protocol: unknown protocol '7'; allowed: {PROTOCOLS}, "),
        ("selection: {protocol: null}", "selection.protocol: unknown protocol 'None'; allowed: "),
        ("selection: {protocol: 'my.module:'}",
         "selection.protocol: should be package.module:Class, not 'my.module:'"),
        ("aggregation: {protocol: secag}",
         "aggregation.protocol: unknown protocol 'secag'; did you mean 'secagg'? allowed: 'plain', 'secagg', "
         "'secagg-plus', 'lightsecagg', 'flamingo', 'one-shot', 'pine', 'e-seafl', 'dp-sgd-random-participation', or "
         "package.module:Class"),
        ("selection: random", "selection: should be a mapping of keys to values, not 'random'"),
        ("selection:", "selection: should be a mapping of keys to values, not null"),
        ("selection: [a]", "selection: should be a mapping of keys to values"),
        ("links: 3", "links: should be a mapping of keys to values, not 3"),
    ],
)  # fmt: skip
def test_keys_and_names_that_do_not_exist(text: str, line: str, mistake: Callable[..., str]) -> None:
    assert mistake(text).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("records: {aggregates: [1, 2, 3]}", "records.aggregates: [1, 2, 3]; allowed: none, all, or"),
        ("aggregation: {batches: ignored, smallest_sum: 4}", "aggregation.smallest_sum: "),
        ("aggregation: {protocol: secagg-plus, smallest_sum: 4}", "aggregation.smallest_sum: has no effect with "),
        ("rounds: ten", "rounds: should be a valid integer, not 'ten'"),
        ("rounds: '10'", "rounds: should be a valid integer, not '10'"),
        ("rounds: 1.5", "rounds: should be a valid integer, not 1.5"),
        ("rounds: true", "rounds: should be a valid integer, not true"),
        ("rounds: null", "rounds: should be a valid integer, not null"),
        ("rounds: []", "rounds: should be a valid integer"),
        ("rounds: 0", "rounds: should be greater than 0, not 0"),
        ("rounds: -3", "rounds: should be greater than 0, not -3"),
        ("seed: -1", "seed: should be greater than or equal to 0, not -1"),
        ("population: 2000000000000", "population: should be less than or equal to 1099511627776, not 2000000000000"),
        ("name: 5", "name: should be a valid string, not 5"),
        ("name: ''", "name: String should have at least 1 character, not ''"),
        ("time: {deadline_s: soon}", "time.deadline_s: should be a valid number, not 'soon'"),
        ("time: {deadline_s: true}", "time.deadline_s: should be a valid number, not true"),
        ("time: {compute: guessed}", "time.compute: should be 'measured' or 'modelled', not 'guessed'"),
        ("time: {costs: {vfr.prove: 1}}", "time.costs: unknown operation 'vfr.prove'; allowed: aead.byte, "),
        ("time: {costs: {hmac: -1}}", "time.costs.hmac: should be greater than or equal to 0, not -1"),
        ("time: {stage_deadlines: {check-in: 0}}", "time.stage_deadlines.check-in: should be greater than 0, not 0"),
        ("cluster: {hosts: many}", "cluster.hosts: should be 'auto' or a valid integer, not 'many'"),
        ("cluster: {hosts: 0}", "cluster.hosts: should be 'auto' or greater than 0, not 0"),
        ("links: {latency_ms: -1}", "links.latency_ms: should be greater than or equal to 0, not -1"),
        ("links: {latency_ms: [5, -1]}", "links.latency_ms.1: should be greater than or equal to 0, not -1"),
        ("links: {latency_ms: []}", "links.latency_ms: should not be empty"),
        ("links: {down_mbit_s: [44, fast]}", "links.down_mbit_s.1: should be a valid number, not 'fast'"),
        ("links: {up_mbit_s: 0}", "links.up_mbit_s: should be greater than 0, not 0"),
        ("availability: {model: bernoulli, unavailable: [0.1, 2]}",
         "availability.unavailable.1: should be less than or equal to 1, not 2"),
        ("availability: {unavailable: 0.5}", "availability: `unavailable` has an effect only with `model: bernoulli`"),
        ("devices: {model: gauss}", "devices.model: unknown model 'gauss'; allowed: constant, uniform, "),
        ("workload: {dataset: mnist}", "workload: dataset mnist needs path"),
        ("sweep: [1]", "sweep: should be a mapping of keys to values"),
        ("sweep: {rounds: 3}", "sweep.rounds: should be a list, not 3"),
        ("sweep: {rounds: []}", "sweep.rounds: should not be empty"),
        ("output: {directory: 5}", "output.directory: should be a valid string, not 5"),
    ],
)  # fmt: skip
def test_values_that_are_not_allowed(text: str, line: str, mistake: Callable[..., str]) -> None:
    assert mistake(text).startswith(line)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("population: 5", "selection.participants: 10 of a population of 5; at most 5"),
        ("selection: {participants: 101}", "selection.participants: 101 of a population of 100; at most 100"),
        ("selection: {protocol: batch-partition, privacy: 3}",
         "selection.privacy: T = 3 does not divide participants K = 10; allowed here: 1, 2, 5, 10"),
        ("selection: {protocol: lotto-server-centric, min_population: 101}",
         "selection.min_population: n_min = 101 of a population of 100; at most 100"),
        ("selection: {protocol: lotto-server-centric, min_population: 61, refine: {}}",
         "selection.min_population: n_min = 61, and `refine` may leave 60 of 100 clients; at most 60, or a smaller "),
        ("selection: {protocol: lotto-client-centric, min_population: 81, refine: {combine: and}}",
         "selection.min_population: n_min = 81, and `refine` may leave 80 of 100 clients; at most 80, or a smaller "),
        ("selection: {protocol: lotto-client-centric, participants: 11, refine: {exclude: 0.45}}",
         "selection.participants: 11, and `refine` may leave 10 of 100 clients; at most 10, or a smaller "),
        ("selection: {protocol: lotto-client-centric, refine: {exclude: 0.9}}",
         "selection.refine.exclude: 0.9 by two metrics with or may leave nobody; at most 0.45"),
        ("selection: {protocol: lotto-client-centric, participants: 11, refine: {by: [latency], exclude: 0.9}}",
         "selection.participants: 11, and `refine` may leave 10 of 100 clients; at most 10, or a smaller "),
        ("selection: {protocol: lotto-client-centric, refine: {by: [loss, loss]}}",
         "selection.refine: by: a duplicate metric"),
        ("selection: {protocol: lotto-client-centric, refine: {by: [loss], combine: joint}}",
         "selection.refine: combine: joint needs both metrics, by: [latency, loss]"),
        ("selection: {protocol: lotto-client-centric, refine: {by: []}}",
         "selection.refine.by: should not be empty"),
        ("selection: {protocol: lotto-client-centric, refine: {combine: xor}}",
         "selection.refine.combine: should be 'or', 'and' or 'joint', not 'xor'"),
        ("selection: {protocol: lotto-client-centric, signatures: 11}",
         "selection.signatures: 11 of 10 participants; at most all"),
        ("selection: {protocol: bernoulli, participants: 60, assumed_unavailable: 0.5}",
         "selection.participants: 60 of 50 clients expected to be available"),
        ("aggregation: {threshold: 5}", "aggregation.threshold: t = 5 of 10 participants; allowed 6 to 10"),
        ("aggregation: {threshold: 11}", "aggregation.threshold: t = 11 of 10 participants; allowed 6 to 10"),
        ("aggregation: {threshold: 0.5}", "aggregation.threshold: t = 5 of 10 participants; allowed 6 to 10"),
        ("aggregation: {smallest_sum: 11}", "aggregation.smallest_sum: 11 of 10 participants; at most 10"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_together(text: str, line: str, mistake: Callable[..., str]) -> None:
    assert mistake(text).startswith(line)


def test_every_mistake_has_its_line(mistakes: Callable[..., list[str]]) -> None:
    lines = mistakes("rounds: 0\nlinks: {latency_ms: -1, latncy: 3}\nselection: {participants: x}\nfoo: 1")
    assert [line.partition(": ")[0] for line in sorted(lines)] == [
        "foo", "links.latency_ms", "links.latncy", "rounds", "selection.participants"
    ]  # fmt: skip


@pytest.mark.parametrize("text", [".nan", ".inf", "-.inf", "1e999", "[1, .nan]", "{a: [.inf]}"])
def test_numbers_that_are_not_finite_are_refused_wherever_they_stand(text: str, mistake: Callable[..., str]) -> None:
    for section in ("links: {latency_ms: %s}", "workload: {learning_rate: %s}", "aggregation: {clip: %s}", "seed: %s"):
        path = section.partition(": %")[0].replace(": {", ".")
        assert mistake(section % text).startswith(path)
        assert "must be a finite number" in mistake(section % text)


def test_long_values_are_cut(mistake: Callable[..., str]) -> None:
    assert len(mistake(f"rounds: {'x' * 5000}")) < 120


# -- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "an experiment must be a mapping of keys to values; see `testbed schema`"),
        ("# nothing yet", "an experiment must be a mapping of keys to values"),
        ("- rounds", "an experiment must be a mapping of keys to values"),
        ("rounds", "an experiment must be a mapping of keys to values"),
        ("rounds: 3\npopulation: [1, 2", ":2:18: not valid YAML: "),
        ("rounds: 3\n  population: 4", ":2:13: not valid YAML: mapping values are not allowed here"),
        ("a: 1\nb: 2\na: 3", ":3:1: not valid YAML: key 'a' occurs twice"),
        ("links:\n  latency_ms: 1\n  latency_ms: 2", ":3:3: not valid YAML: key 'latency_ms' occurs twice"),
        ("? [a, b]\n: 1", ":1:3: not valid YAML: a key must be a single word"),
        ("? {a: b}\n: 1", ":1:3: not valid YAML: a key must be a single word"),
        ("a: !!python/object/apply:os.system [ls]", ":1:4: not valid YAML: could not determine a constructor"),
        ("a: *b", ":1:4: not valid YAML: found undefined alias 'b'"),
        ("a: 2024-13-45", "not valid YAML: month must be in 1..12"),
        ("a: !!bool perhaps", "not valid YAML: a value cannot be read"),
        ("a: !!int ''", "not valid YAML: "),
        ("a: !!timestamp soon", "not valid YAML: a value cannot be read"),
        ("rounds: " + "9" * 5000, ":1:9: not valid YAML: a number of 5000 characters; at most 200"),
        ("rounds: 0x" + "f" * 5000, ":1:9: not valid YAML: a number of 5002 characters; at most 200"),
        ("a: \x07", "not valid YAML: "),
        ("a: &a [*a]", ":1:8: not valid YAML: the alias *a is part of its own value"),
        ('a: "\\ud800"', "an experiment cannot hold this value: "),
        ("a: " + "[" * 300 + "]" * 300, ":1:67: not valid YAML: more than 64 nested sections and lists"),
        ("a: " + "[" * 3000 + "]" * 3000, ":1:67: not valid YAML: more than 64 nested sections and lists"),
        ('"a\\nb": 1', "'a\\nb': unknown key"),
    ],
)
def test_files_that_hold_no_experiment(text: str, line: str, mistake: Callable[..., str]) -> None:
    assert mistake(text).startswith(line)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    junk = tmp_path / "junk.yaml"
    junk.write_bytes(bytes(range(256)))
    for path, says in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "Is a directory"), (junk, "not a text")):
        with pytest.raises(ExperimentError, match=says) as error:
            load(path)
        assert str(error.value).startswith(f"{path}: ")
        assert "\n" not in str(error.value)


def test_what_yaml_offers_works(load_text: Callable[..., Experiment]) -> None:
    experiment = load_text(
        "rounds: 3\nlinks: &slow {latency_ms: 100}\n"
        "sweep:\n  links: [*slow, {<<: *slow, down_mbit_s: 1e1}]\n"
        "workload: {learning_rate: 1e-3, weight_decay: 1E-5, momentum: .5}\nname: 2024-01-01"
    )
    assert experiment.links.latency_ms == 100
    assert experiment.sweep["links"][1] == {"latency_ms": 100, "down_mbit_s": 10.0}
    assert (experiment.workload.learning_rate, experiment.workload.weight_decay) == (0.001, 0.00001)
    assert experiment.name == "2024-01-01"


# -- names of stages ----------------------------------------------------------------------------------------------


def test_stages_that_no_protocol_has_are_refused(mistake: Callable[..., str]) -> None:
    line = mistake("availability: {dropout: {rate: 0.1, stage: secagg/maskedinput}}")
    assert line.startswith(
        "availability.dropout.stage: unknown stage 'secagg/maskedinput'; did you mean 'secagg/masked-input'? allowed: "
    )
    assert mistake("time: {stage_deadlines: {lotto/anounce: 5}}\nselection: lotto-client-centric").startswith(
        "selection: should be a mapping"
    )
    assert mistake("time: {stage_deadlines: {lotto/anounce: 5}}\nselection: {protocol: lotto-client-centric}") == (
        "time.stage_deadlines: unknown stage 'lotto/anounce'; did you mean 'lotto/announce'? allowed: lotto/announce, "
        "lotto/participants, lotto/signatures, train, secagg/advertise-keys, secagg/share-keys, secagg/masked-input, "
        "secagg/consistency, secagg/unmask"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "aggregation: {protocol: plain}\navailability: {dropout: {rate: 0.3, stage: secagg/unmask}}",
            "availability.dropout.stage: 'secagg/unmask' is no stage of selection random with aggregation plain; "
            "allowed: random, check-in, train, plain/update",
        ),
        (
            "aggregation: {protocol: plain}\navailability: {dropout: {hazard: {train: 0.1, secagg/unmask: 0.1}}}",
            "availability.dropout.hazard: 'secagg/unmask' is no stage of selection random with aggregation plain; "
            "allowed: check-in, train, plain/update",
        ),
        (
            "time: {stage_deadlines: {lotto/announce: 5}}",
            "time.stage_deadlines: 'lotto/announce' is no stage of selection random with aggregation secagg; allowed: "
            "check-in, train, secagg/advertise-keys, secagg/share-keys, secagg/masked-input, secagg/consistency, "
            "secagg/unmask",
        ),
        (
            "time: {stage_quorums: {plain/update: 0.5}}",
            "time.stage_quorums: 'plain/update' is no stage of selection random with aggregation secagg; allowed: "
            "check-in, train, secagg/advertise-keys, secagg/share-keys, secagg/masked-input, secagg/consistency, "
            "secagg/unmask",
        ),
        (
            "aggregation: {consistency: none}\navailability: {dropout: {rate: 0.3, stage: secagg/consistency}}",
            "availability.dropout.stage: 'secagg/consistency' is no stage of selection random with aggregation secagg; "
            "allowed: random, check-in, train, secagg/advertise-keys, secagg/share-keys, secagg/masked-input, "
            "secagg/unmask-survivors",
        ),
    ],
)
def test_stages_of_protocols_that_are_not_there_are_refused(text: str, line: str, mistake: Callable[..., str]) -> None:
    assert mistake(text) == line


SWEEP = "sweep: {aggregation: [{protocol: secagg}, {protocol: plain}]}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("availability: {dropout: {rate: 0.1, stage: train}}", ""),
        ("availability: {dropout: {hazard: {plain/update: 0.1, secagg/masked-input: 0.1}}}", ""),
        ("time: {stage_deadlines: {secagg/unmask: 5, plain/update: 2}, stage_quorums: {secagg/share-keys: 0.5}}", ""),
        (
            "availability: {dropout: {rate: 0.1, stage: secagg/unmask}}",
            "sweep point plain: availability.dropout.stage: 'secagg/unmask' is no stage of",
        ),
        (
            "availability: {dropout: {hazard: {secagg/unmask: 0.1}}}",
            "sweep point plain: availability.dropout.hazard: 'secagg/unmask' is no stage of",
        ),
        ("time: {stage_deadlines: {lotto/announce: 5}}", "sweep point secagg: time.stage_deadlines: 'lotto/announce'"),
    ],
)
def test_in_a_sweep_each_point_loses_clients_and_some_point_has_the_deadline(
    text: str, line: str, load_text: Callable[..., Experiment], mistake: Callable[..., str]
) -> None:
    """Without its dropouts a point would be compared with others as if all clients had stayed."""
    if line:
        assert mistake(SWEEP + text).startswith(line)
    else:
        load_text(SWEEP + text)


def kinds_of_messages(base: type[Message] = Message) -> Iterator[type[Message]]:
    """Yield every type of message, including those of other tests."""
    for kind in base.__subclasses__():
        yield kind
        yield from kinds_of_messages(kind)


def test_every_built_in_protocol_names_the_stages_that_it_asks() -> None:
    named = {
        stage
        for selection in get_args(get_args(SelectionSection)[0])[:-1]
        for aggregation in get_args(get_args(AggregationSection)[0])[:-1]
        for made in [[get_args(one)[0].model_construct() for one in (selection, aggregation)]]
        for stage in stages_of(Experiment.model_construct(selection=made[0], aggregation=made[1])) or ()
    }
    asked = {kind.stage for kind in kinds_of_messages() if kind.__module__.startswith("testbed.")} - {""}
    assert asked <= known_stages()
    assert {stage for stage in asked if not stage.startswith("adversary/")} == named | {
        "batches/list",  # with selection.membership: announced or pinned
        "batches/signatures",
        "secagg/unmask-survivors",  # with consistency: none
        "committee/sortition",  # where clients are drawn for a committee by sortition
        "secagg/prove-share",  # only where shares contradict each other: no stage of a round that could be planned for
        *FlamingoParameters.further_stages,  # only in rounds in which a committee's service begins
    }


def test_stages_of_classes_of_ones_own_are_known_where_the_class_is(load_text: Callable[..., Experiment]) -> None:
    experiment = load_text(
        "selection: {protocol: 'theirs:Own', size: 3}\navailability: {dropout: {stage: theirs/first}}"
    )
    check_stages(experiment, ["theirs/first"])
    with pytest.raises(ExperimentError, match="unknown stage 'theirs/first'"):
        check_stages(experiment, ["theirs/second"])


# -- overrides ----------------------------------------------------------------------------------------------------


def test_overrides_are_yaml_in_dotted_keys(load_text: Callable[..., Experiment]) -> None:
    experiment = load_text(
        "rounds: 3\nselection: {protocol: batch-partition, privacy: 2}\nlinks:",
        "selection.participants=20",
        "rounds = 7",
        "links.latency_ms=[1, 2.5]",
        "selection={mode: uniform}",
        "name=a=b",
        "workload.learning_rate=1e-2",
        "seed=null",
    )
    assert (experiment.rounds, experiment.name, experiment.seed) == (7, "a=b", None)
    assert experiment.links.latency_ms == [1, 2.5]
    assert experiment.workload.learning_rate == 0.01
    selection = experiment.selection.model_dump()
    assert selection == {"protocol": "batch-partition", "privacy": 2, "participants": 20, "mode": "uniform"}


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("rounds", "--set rounds: must be key=value, e.g. selection.participants=20"),
        ("=5", "--set =5: must be key=value"),
        ("  =5", "--set   =5: must be key=value"),
        ("a..b=5", "--set a..b=5: 'a..b' is not a key"),
        (".a=5", "--set .a=5: '.a' is not a key"),
        ("rounds.x=5", "--set rounds.x=5: rounds is not a section and has no key x"),
        ("rounds=[", "--set rounds=[:1:2: not valid YAML"),
        ("rounds={a: 1, a: 2}", "--set rounds={a: 1, a: 2}:1:8: not valid YAML: key 'a' occurs twice"),
    ],
)
def test_overrides_that_cannot_be_applied(override: str, line: str, mistake: Callable[..., str]) -> None:
    assert mistake("rounds: 3", override).startswith(line)


def test_a_key_of_a_transport_that_has_a_presets_name_is_told_how_to_be_set(mistake: Callable[..., str]) -> None:
    said = mistake("links: {transport: tls}", "links.transport.connection=persistent")
    assert said.endswith("has no key connection; set links.transport={preset: tls, connection: ...}")


def test_an_override_is_checked_like_the_file(mistake: Callable[..., str]) -> None:
    assert mistake("rounds: 3", "selection.particpants=3").startswith("selection.particpants: unknown key; did you")
    assert mistake("rounds: 3", "rounds=").startswith("rounds: should be a valid integer, not null")


# -- arbitrary input ----------------------------------------------------------------------------------------------

_scalars = (
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text(max_size=8)
    | st.dates() | st.datetimes() | st.binary(max_size=4)
)  # fmt: skip
_known_keys = st.sampled_from(
    [
        *sorted(Experiment.model_fields), "protocol", "participants", "latency_ms", "dropout", "rate", "stage", "costs",
        "threshold", "model", "dataset", "options", "hosts", "stage_deadlines", "selection.participants", "privacy",
    ]
)  # fmt: skip
_keys = _known_keys | st.text(max_size=4) | st.integers() | st.none() | st.booleans() | st.floats() | st.dates()
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4), max_leaves=12
)
_sections = st.dictionaries(_keys, _values, max_size=5)


def lines_of(action: Callable[[], Any]) -> list[str]:
    """Return the lines of the `ExperimentError` that an action raises, empty without one; no other error is allowed."""
    try:
        assert isinstance(action(), Experiment)
    except ExperimentError as error:
        return str(error).split("\n")
    return []


@given(data=st.dictionaries(_known_keys, _sections | _values, max_size=5))
def test_no_data_escapes_as_anything_but_one_line_errors(data: dict[Any, Any]) -> None:
    for line in lines_of(lambda: validated(data, "fuzz.yaml")):
        assert line.startswith("fuzz.yaml: ")
        assert line.isprintable()


@given(
    data=st.dictionaries(_known_keys, _sections | _values, max_size=4),
    override=st.text(max_size=20) | st.builds("{}={}".format, st.text(max_size=6), st.text(max_size=9)),
)
@example(data={}, override="\n")
@example(data={}, override="rounds=\n\x07")
@example(data={"rounds": 2}, override="rounds.\n=3")
def test_no_file_or_override_escapes_as_anything_but_one_line_errors(
    data: dict[Any, Any], override: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_bytes(yaml.safe_dump(data, encoding="utf-8"))
    for overrides in ([], [override]):
        for line in lines_of(partial(load, path, overrides)):
            assert line.startswith((str(path), "--set "))
            assert line.isprintable()


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
    | st.text("{}[]&*!|>%@`'\"#-:?, \n\tab01.<", max_size=40)
)
def test_no_text_escapes_as_anything_but_one_line_errors(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-text.yaml"
    path.write_text(text, encoding="utf-8")
    for line in lines_of(lambda: load(path)):
        assert line.startswith(str(path))
        assert line.isprintable()


@given(junk=st.binary(max_size=60))
def test_no_bytes_escape_as_anything_but_one_line_errors(junk: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed-bytes.yaml"
    path.write_bytes(junk)
    assert len(lines_of(lambda: load(path))) <= 1


def test_what_is_loaded_is_what_the_schema_makes_of_the_same_data(tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text("name: same\nrounds: 3\n")
    loaded = load(file, ["population=20"])
    assert loaded == validated({"name": "same", "rounds": 3, "population": 20}, "data")
    assert type(loaded) is Experiment
