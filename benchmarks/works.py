"""The list of benchmarks that `make bench` runs, with their targets."""

from dataclasses import dataclass

SECAGG_PLUS_WIDE = ("--clients", "5000", "--dimension", "100000", "--dropouts", "500")


@dataclass(frozen=True)
class Work:
    """One row of the table of `make bench`.

    Attributes:
        name: as in `--only` and in a file of results.
        says: the row's text.
        module: ``benchmarks.<module>``, which prints one flat JSON object.
        options: of its command line.
        target_s: largest acceptable time in seconds, on two cores of a server CPU.
        target_ratio: largest acceptable ratio to the floor.
    """

    name: str
    says: str
    module: str
    options: tuple[str, ...] = ()
    target_s: float | None = None
    target_ratio: float | None = None

    @property
    def command(self) -> str:
        """Return the command that repeats this row alone."""
        return " ".join(("python -m", f"benchmarks.{self.module}", *self.options))


WORKS = (
    Work("vrf", "VRF: one proof made and verified", "vrf"),
    Work("participant-list", "a participant's list of 70 proofs, verified", "participant_list", target_s=0.012),
    Work("secagg-symbolic", "SecAgg, 70 x 1,018,174, 7 drop-outs, masks as symbols", "secagg",
         ("--masks", "symbolic"), target_s=0.6),
    Work("secagg-aes", "the same, every mask expanded by AES-256-CTR", "secagg",
         ("--masks", "materialised", "--prg", "aes-256-ctr")),
    Work("secagg-aegis", "the same, by AEGIS-256X4", "secagg",
         ("--masks", "materialised", "--prg", "aegis-256x4"), target_s=1.6, target_ratio=1.3),
    Work("secagg-700", "SecAgg, 700 x 1,018,174, 70 drop-outs, masks as symbols", "secagg",
         ("--clients", "700", "--dropouts", "70", "--masks", "symbolic", "--repeat", "1"), target_s=20.0),
    Work("secagg-plus-700", "secagg-plus, the same clients, masks as symbols", "secagg_plus",
         ("--masks", "symbolic"), target_s=5.0),
    Work("secagg-plus-5000", "secagg-plus, 5,000 x 100,000, 500 drop-outs, masks as symbols", "secagg_plus",
         (*SECAGG_PLUS_WIDE, "--masks", "symbolic"), target_s=30.0),
    Work("lightsecagg", "LightSecAgg, 100 x 1,000,000, U = 70, T = 50, 10 drop-outs (CPU)", "lightsecagg",
         target_ratio=2.0),
    Work("robust-rules", "median, 100 x 1,000,000 (CPU)", "robust_rules", target_ratio=2.0),
    Work("flamingo", "Flamingo, 100 x 1,000,000, committee of 60, 10 drop-outs, masks as symbols (CPU)", "flamingo",
         target_ratio=2.0),
    Work("one-shot", "one-shot, 100 x 1,000,000, 60 members, 10 drop-outs (CPU)", "one_shot", target_ratio=2.0),
    Work("one-shot-1000", "one-shot, 1,000 x 100,000, 60 members, 100 drop-outs (CPU)", "one_shot",
         ("--clients", "1000", "--dimension", "100000", "--dropouts", "100", "--bits", "31"),
         target_s=60.0, target_ratio=2.0),
    Work("pine", "PINE, 100 x 1,000,000, 10 drop-outs, every proof made and checked (CPU)", "pine", target_ratio=2.0),
    Work("distributed-noise", "noise for 10^6 parameters: encode, add, decode", "distributed_noise"),
    Work("correlated-noise", "the server's noise for 10^6 parameters, BLT of 4 buffers", "correlated_noise"),
    Work("round-225", "a round on Ray, 70 of 700 clients, 225 samples each", "round", ("--samples", "225")),
    Work("round-20", "the same, 20 samples each", "round", ("--samples", "20"), target_ratio=1.1),
    Work("table2", "a round of Lotto's Table 2 on Ray, 70 of 700 clients", "table2", target_s=8.5),
    Work("local-training", "one client's epoch", "local_training"),
    Work("user-model", "the same with a torch module and data of one's own", "user_model", target_ratio=1.1),
    Work("selection", "server-centric selection from 10^6 clients", "selection"),
    Work("multi-round-metrics", "T after each of 1,500 rounds, six schemes", "multi_round_metrics"),
    Work("compare-runs", "the tables of 100 runs of 200 rounds", "compare_runs", target_s=20.0),
    Work("reconstruct", "40 clients' updates out of the sums of 40 rounds", "reconstruct"),
    Work("transfers", "10^5 concurrent transfers that share a link", "transfers", target_ratio=4.0),
    Work("start", "from the command to the first round on Ray", "start", target_s=8.0),
    Work("crowd", "10^7 clients, server-centric selection and a round", "crowd", target_s=20.0),
    Work("batched-training", "50 clients of pfl-research's CIFAR-10 setup trained at once", "batched_training"),
    Work("scale", "a round of 10^6 clients on Ray, 100 participants", "scale"),
)  # fmt: skip
