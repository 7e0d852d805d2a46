# SPDX-License-Identifier: Apache-2.0
"""The brain: the broker's machine and the client's machines. Rules only.

May not: know time, randomness, files, sockets, threads or logging. `decide(now, input)` says what should happen,
`apply(record)` is the only thing that changes durable state, live and in recovery alike.
Next: core/packets.py and core/records.py for the words, core/broker.py for the rules.
"""
