"""Keys of the ``workload`` section that say more of local steps."""

from typing import Annotated

from pydantic import Field

Proximal = Annotated[
    float,
    Field(
        ge=0,
        le=1e6,
        allow_inf_nan=False,
        exclude_if=lambda strength: strength == 0,
        description="FedProx (Li et al. 2020, arXiv 1812.06127): mu times the distance to the model that was given is "
        "added to each local step's gradient; 0: FedAvg.",
    ),
]
