# SPDX-License-Identifier: Apache-2.0
"""The Spark session of the pipeline's tests, for those of the laboratory."""

from __future__ import annotations

from tests.pipeline.conftest import spark

__all__ = ["spark"]
