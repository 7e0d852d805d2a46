# SPDX-License-Identifier: Apache-2.0
"""What checking one file gave.

May not: check anything.
Next: verify.py and verify_state.py, which find.
"""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One file was checked. `problem` is "" if nothing is wrong with it; `position` says where the problem begins.

    `remark`: a file that is not there and need not be, because the next start makes it again.
    """

    name: str
    bytes_checked: int
    problem: str = ""
    position: int = 0
    remark: str = ""
