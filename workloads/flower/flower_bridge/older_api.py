"""Messages of Flower's older API; its modules have other names in flwr 1.28 than in flwr 1.41."""

try:
    from flwr.compat.common import recorddict_compat as compat
    from flwr.compat.common.typing import Code, EvaluateRes, FitRes, GetParametersIns, Status
except ImportError:
    from flwr.common import recorddict_compat as compat
    from flwr.common.typing import Code, EvaluateRes, FitRes, GetParametersIns, Status

__all__ = ["Code", "EvaluateRes", "FitRes", "GetParametersIns", "Status", "compat"]
