"""When the one-launch kernel may run instead of the two: predicates as data, a list for each platform.

A selector that is off, and a call outside the lane's scope (other numbers of tokens, drafts, prompts, other models,
LoRA, graphs, other shapes), leave the incumbent as it is. A call inside the scope that breaks any other predicate is
an error that names it, raised before anything is launched; there is no silent way back to the incumbent.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from moegauge import errors
from moegauge.lanes.laguna_m8.facts import Call, Environment, Platform, TensorFacts
from moegauge.lanes.laguna_m8.predicates import PREDICATES, Predicate
from moegauge.lanes.laguna_m8.tensors import apart, aspects, on_one_device


class Dispatch(Enum):
    """Which arm a call takes."""

    INCUMBENT = "incumbent"
    TREATMENT = "treatment"


INCUMBENT = Dispatch.INCUMBENT
TREATMENT = Dispatch.TREATMENT


class ContractBroken(errors.MisuseError):
    """A call of the lane's scope that the candidate must not serve. Nothing was launched.

    Attributes:
        predicate: name of the first predicate that does not hold.
    """

    def __init__(self, predicate: str, *, where: str, expected: str, found: str) -> None:
        self.predicate = predicate
        super().__init__(
            where=f"{where}, predicate {predicate}",
            expected=expected,
            found=found,
            remedy="Nothing was launched. Bring the call back into the contract, or switch the selector off.",
        )


@dataclass(frozen=True)
class Contract:
    """Everything that has to hold on one platform before the candidate runs.

    Attributes:
        selector: environment variable that switches the treatment on with the literal value 1; off otherwise.
        predicates: all of them, those of the scope first.
    """

    platform: Platform
    selector: str
    predicates: tuple[Predicate, ...]

    def dispatch(self, call: Call, environment: Environment) -> Dispatch:
        """Arm of a call under this contract.

        Raises:
            ContractBroken: the selector is on, the call is of the scope, and a predicate does not hold.
        """
        if environment.selectors.get(self.selector) != "1":
            return INCUMBENT
        if not all(one.holds(call, environment) for one in self.predicates if one.scope):
            return INCUMBENT
        for one in self.predicates:
            if not one.holds(call, environment):
                raise ContractBroken(
                    one.name, where=f"{self.selector}=1", expected=one.sentence, found="a call that breaks it"
                )
        return TREATMENT


def select(call: Call, environment: Environment) -> Dispatch:
    """Arm of a call: the treatment where a selector is on and its whole contract holds, else the incumbent.

    Raises:
        ContractBroken: a selector is on (that of another platform included), the call is of the lane's scope, and a
            predicate does not hold.
    """
    chosen = [contract.dispatch(call, environment) for contract in CONTRACTS.values()]
    return TREATMENT if TREATMENT in chosen else INCUMBENT


def check_tensors(*, outputs: Mapping[str, TensorFacts], inputs: Mapping[str, TensorFacts]) -> None:
    """Hold the tensors of a kernel against what they have to be, before it is launched.

    Args:
        outputs, inputs: by name, a key of :data:`moegauge.lanes.laguna_m8.tensors.TENSORS`.

    Raises:
        ContractBroken: the first aspect that does not hold, by name.
    """
    for tensor, found in (*outputs.items(), *inputs.items()):
        for name, sentence, holds in aspects(tensor):
            if not holds(found):
                raise ContractBroken(name, where="kernel of laguna_m8", expected=sentence, found=str(found))
    devices = [one.device for one in (*outputs.values(), *inputs.values())]
    if not on_one_device((*outputs.values(), *inputs.values())):
        raise ContractBroken("one-device", where="kernel of laguna_m8", expected="one device", found=", ".join(devices))
    if not apart(outputs.values(), inputs.values()):
        raise ContractBroken(
            "no-overlap", where="kernel of laguna_m8", expected="outputs with bytes of their own", found="shared bytes"
        )


CONTRACTS: dict[Platform, Contract] = {
    "xpu": Contract("xpu", "VLLM_XPU_LAGUNA_M8_GATHER_FINALIZE", PREDICATES["xpu"]),
    "cuda": Contract("cuda", "MOEGAUGE_CUDA_LAGUNA_M8_GATHER_FINALIZE", PREDICATES["cuda"]),
    "cpu": Contract("cpu", "MOEGAUGE_CPU_LAGUNA_M8_GATHER_FINALIZE", PREDICATES["cpu"]),
}
"""The contract of each platform. CUDA and the host cannot satisfy the list of XPU, and have selectors of their own."""
