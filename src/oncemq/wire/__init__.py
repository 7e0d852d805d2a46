# SPDX-License-Identifier: Apache-2.0
"""The tongue: packet to frames and back. Pure.

May not: know sockets; accept a byte more than the limits allow; look anything up by a name from the wire.
Next: wire/codec.py.
"""
