# SPDX-License-Identifier: Apache-2.0
"""Short runs of every benchmark: what they print, and that they leave nothing."""
