"""Types of arguments that several verbs have."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Flag = Annotated[bool, Parameter(negative="")]
"""--name, without a --no-name."""

Many = Annotated[list[str] | None, Parameter(negative="", consume_multiple=False)]
"""An option that may be given several times, one value each time."""
