# SPDX-License-Identifier: Apache-2.0
"""The second brain: who knows whom, who is told what, and who misses what. Pure.

May not: know time, dice, files or sockets but as arguments; import journal, wire or anything above.
The idea: four layers, as machines inside one another. hyparview.py keeps the neighbours, broadcast.py floods them,
antientropy.py finds out what was missed, node.py stores in each origin's order and filters by topic.
Next: node.py, which holds the others; docs/mesh.md for the protocol in prose.
"""
