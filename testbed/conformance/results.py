"""Properties, and results of checking them."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from testbed.crashes import locating_crashes
from testbed.errors import CodeCrashed, TestbedError, reason

Evidence = TypeVar("Evidence")
Verdict = Literal["passed", "failed", "not applicable"]


class Violation(Exception):
    """A class lacks a property; the message has the problem, the place and the remedy."""


class NotApplicable(Exception):
    """A property does not apply to a class; the message has the reason."""


@dataclass(frozen=True)
class Result:
    """Result of checking one property.

    Attributes:
        claim: the property in one sentence.
        verdict: whether the class has it.
        detail: extent of the check; for a failure problem, place and remedy; else the reason.
        trace: traceback, as text, of an exception that is not the testbed's own; else empty.
    """

    claim: str
    verdict: Verdict
    detail: str
    trace: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class PropertyResult(Generic[Evidence]):
    """A property of all classes of one contract.

    Attributes:
        claim: the property in one sentence.
        check: returns the extent of the check; raises `Violation` or `NotApplicable`.
    """

    claim: str
    check: Callable[[Evidence], str]

    def result(self, evidence: Evidence) -> Result:
        """Check the property."""
        try:
            with locating_crashes("the class", then=""):
                return Result(self.claim, "passed", self.check(evidence))
        except NotApplicable as error:
            return Result(self.claim, "not applicable", str(error))
        except Violation as error:
            return Result(self.claim, "failed", str(error))
        except CodeCrashed as error:
            return Result(self.claim, "failed", f"{error.line}; --debug prints the traceback", error.trace)
        except TestbedError as error:
            return Result(self.claim, "failed", f"the run ended: {reason(error)}")
        except Exception as error:  # the class has returned a value of a wrong type
            line = f"the run ended: {type(error).__name__}: {reason(error)}; --debug prints the traceback"
            return Result(self.claim, "failed", line, "".join(traceback.format_exception(error)))


def results(evidence: Evidence, properties: Sequence[PropertyResult[Evidence]]) -> Iterator[Result]:
    """Yield the results of properties in order; without the first one, that rounds run at all, there are no others.

    Args:
        evidence: evidence about the class.
        properties: the properties.
    """
    for position, property_ in enumerate(properties):
        result = property_.result(evidence)
        yield result
        # Without rounds, every other property would fail for the same cause.
        if position == 0 and result.verdict == "failed":
            return
