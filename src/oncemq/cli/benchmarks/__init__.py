# SPDX-License-Identifier: Apache-2.0
"""What `oncemq bench` measures: real broker processes, real disks, the public API, and a bare floor beside each figure.

May not: reach into the product to be faster, or print anything.
The idea: a figure alone says more about the machine than about the program. So each is measured in turn with what the machine
can do at best, in the same run on the same disk, and the ratio is what counts.
Next: workplace.py for where it happens, then puts.py, gets.py, latency.py, restart.py, memory.py; docs/performance.md.
"""
