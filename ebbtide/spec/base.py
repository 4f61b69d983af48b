"""What all parts of the job object share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

GROUP = "rlhf.ebbtide.dev"
API_VERSION = f"{GROUP}/v1alpha1"
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
URI_PATTERN = r"^[^\s\x00-\x1f]+$"
ENTRY_POINT_PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
CURRENCY_PATTERN = r"^[A-Z]{3}$"
WORD_PATTERN = r"^[A-Za-z0-9._-]+$"
UID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9-]*$"
PATTERN_WORDS = {
    UID_PATTERN: "must be letters, digits and '-', as in metadata.uid of a job",
    WORD_PATTERN: "must be letters, digits, '.', '_' and '-'",
    ENTRY_POINT_PATTERN: "must be module:function, such as grade:short_and_right",
    CURRENCY_PATTERN: "must be three capital letters, such as USD",
    NAME_PATTERN: "must be lower-case letters, digits and -, and start with a letter",
    URI_PATTERN: "must have no spaces and no control characters",
}

Uri = Annotated[str, Field(min_length=1, max_length=2048, pattern=URI_PATTERN)]
Name = Annotated[str, Field(min_length=1, max_length=40, pattern=NAME_PATTERN)]
Seconds = Annotated[float, Field(gt=0, le=30 * 86400)]
