# SPDX-License-Identifier: Apache-2.0
"""What applications hold: thin runners of core's client machines.

May not: hold a rule. Rules are in core/publisher.py, core/subscriber.py, core/slot.py and core/identity.py.
Next: client/client.py for the blocking client, client/state.py for its directory, client/connect.py for the front door.
"""
