# SPDX-License-Identifier: Apache-2.0
"""The version of this package.

May not: be written anywhere else but in pyproject.toml; a test compares them.
Next: CHANGELOG.md for what each version brought.
"""

VERSION = "0.1.0"
