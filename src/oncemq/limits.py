# SPDX-License-Identifier: Apache-2.0
"""Every bound and default of OnceMQ, with unit, reason and origin.

May not: import anything of the project; compute anything but constants.
The idea: a number that is not here does not exist. Each line ends with where the number comes from:
`rule` (notes of the design), `measured` (with the command), `paper`, `peer` (what comparable systems use), `guess`.
Next: errors.py for what happens when a bound is met, docs/protocol.md for those a client must know.
"""

from __future__ import annotations

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- names ---------------------------------------------------------------------------------------
NAME_BYTES_MAX: Final = 255  # Topic names and client ids. peer: NATS and Kafka stop at 249-255.
CLIENTS_MAX: Final = 100_000  # Durable clients a broker keeps. guess: 100 MB of state at worst.
TOPICS_MAX: Final = 100_000  # Topics of a broker. guess: the snapshot must stay writable in one go.
SUBSCRIPTIONS_MAX: Final = 100_000  # Subscriptions of a broker. guess: as above.

# --- messages and blocks -------------------------------------------------------------------------
VALUE_BYTES_MAX: Final = 16 * MIB  # Largest value. rule: settled with the first format.
KEY_BYTES_MAX: Final = 64 * KIB  # Largest key. guess: keys are read whole for routing.
HEADERS_BYTES_MAX: Final = 64 * KIB  # All headers of one message. guess: headers are for routing, not for data.
BLOCK_BYTES_MAX: Final = 32 * MIB  # Largest block, and all blocks of one transaction. rule.
BLOCK_CUT_BYTES: Final = 1 * MIB  # An open block is cut at this size. rule.
BLOCK_CUT_MESSAGES: Final = 1_000  # ... or at this count. rule.
PUT_TOPICS_MAX: Final = 64  # Topics of one atomic put. guess: a put is not a broadcast.

# --- put streams ---------------------------------------------------------------------------------
PUT_WINDOW_BLOCKS: Final = 64  # Blocks in flight per client. measured: bench put, flat from 16 on.
PUT_WINDOW_BYTES: Final = 16 * MIB  # ... and bytes. measured: bench put --size 1024.
OUTCOMES_KEPT_BLOCKS: Final = 128  # Outcomes a broker can repeat. rule: at least two windows.
PENDING_STREAMS_MAX: Final = 1_000  # Older streams one client may still be sending. guess: one per run while away.
KNOWN_SESSIONS_MAX: Final = 1_000  # Sessions tried since the last welcome. guess: as above; both fit a Hello.
SESSIONS_REMEMBERED: Final = 8  # Older sessions a broker recognises when they speak late. guess: tries of one outage.
PAST_SESSIONS_MAX: Final = 500  # Older welcomed sessions kept to recognise a restored broker. guess: a day of short runs.

# --- transactions --------------------------------------------------------------------------------
TRANSACT_ACKS_MAX: Final = 256  # Subscriptions one transaction may acknowledge. guess: more is a design problem.
TRANSACT_PUTS_MAX: Final = 64  # Blocks one transaction may put: half of the outcomes kept, so a repeat finds all. rule.

DATABASE_LOCK_WAIT_MS: Final = 10_000  # How long a row of PostgreSQL is waited for where no lock_timeout is set. guess.

# --- gets ----------------------------------------------------------------------------------------
GET_BYTES: Final = 1 * MIB  # What one Get asks for. measured: bench get.
GET_BYTES_MAX: Final = 32 * MIB  # What one Get may ask for. rule: one block always fits.
GET_WAIT_MS_MAX: Final = 30_000  # How long a Get may be parked. guess: below common NAT time-outs.
GET_PARK_MS: Final = 2_000  # How long a client parks one Get: with it the time to notice a restart. guess.
GET_MANY_MAX: Final = 100_000  # Messages one get_many hands out: all of them may end up in doubt. guess.
GET_WANTS_MAX: Final = 1_024  # Subscriptions named in one Get. guess.
PARKED_GETS_MAX: Final = 10_000  # Gets waiting at a broker. guess: 10 MB.
RESERVE_AHEAD_MESSAGES: Final = 1_000  # In-doubt bound after an operating-system crash. rule.
RESERVE_AHEAD_CALLS: Final = 4  # ... or so many calls of get_many. measured: bench get.
RESERVE_AHEAD_BLOCKS: Final = 256  # ... or so many blocks of listen_blocks. measured: bench fanout; at 10 it is mostly syncs.
OFFSET_MAX: Final = 2**63 - 1  # What eight signed bytes hold. rule: settled with the first format.

# --- wire ----------------------------------------------------------------------------------------
WIRE_VERSION: Final = 1  # First byte of every packet. rule.
HEADER_BYTES_MAX: Final = 64 * KIB  # First frame of a packet to a broker. rule: limits before parsing.
FRAMES_MAX: Final = 4  # Frames of a packet to a broker, delimiter included. rule.
PORT_REQUEST: Final = 5556  # Where a broker listens. peer: the earlier designs' request port.
PORT_LIVE: Final = 5557  # Where it publishes to live subscribers. peer: the earlier designs' live port.

# --- engine --------------------------------------------------------------------------------------
DRAIN_PACKETS_MAX: Final = 1_000  # Packets one sync may cover. guess: bounds latency of the first.
DRAIN_BYTES_MAX: Final = 8 * MIB  # ... and bytes. measured: bench put --size 1024, flat from 4 MiB on.
CURSOR_DELAY_MS: Final = 1_000  # A cursor record waits at most this long for a group. rule.
HOUSEKEEPING_MS: Final = 1_000  # Trimming and leases. guess.
RECORD_ROOM_BYTES: Final = 2 * KIB  # What a record may need besides a block: names, ids, frames. measured: 600 at most.
CONTROL_ROOM_BYTES: Final = 8 * KIB  # What a drain may write besides its packets' records. guess.
NETWORK_BACKLOG_PACKETS: Final = 10_000  # ZeroMQ high-water mark per peer. guess.

# --- live ----------------------------------------------------------------------------------------
LIVE_HEARTBEAT_MS: Final = 1_000  # How often a followed channel is told its end. guess: a lost tail waits at most this long.
LIVE_SILENCE_MS: Final = 3_000  # Without a word for this long a channel is not relied on. guess: three heartbeats.
LIVE_PACKET_BYTES: Final = 256 * KIB  # Blocks of one drain and topic leave together up to this size. measured: bench fanout.
LIVE_BLOCK_BYTES_MAX: Final = 2 * MIB  # A larger block is not pushed, only told: queues count packets, not bytes. guess.
LIVE_DRAIN_BYTES_MAX: Final = 8 * MIB  # What one drain pushes on a channel at most; the rest is told. rule: as DRAIN_BYTES_MAX.
LIVE_SEND_BACKLOG_PACKETS: Final = 256  # Queue to one subscriber at the broker; beyond it packets are lost to it. guess.
LIVE_RECEIVE_BACKLOG_PACKETS: Final = 64  # Queue at a subscriber. guess: 16 MiB of full packets.
LIVE_ACK_MESSAGES: Final = 100_000  # A listener tells what is finished at least this often ... measured: bench fanout.
LIVE_ACK_MS: Final = 1_000  # ... and this often if there is news. rule: R6, T is a guess.
LIVE_SIGN_OF_LIFE_MS: Final = 5_000  # A listener without news speaks all the same: leases, fencing. guess.

# --- journal -------------------------------------------------------------------------------------
SEGMENT_BYTES: Final = 128 * MIB  # One file of the journal. rule.
SEGMENT_RECORDS_MAX: Final = 50_000  # Replay stays under half a second. measured: bench restart.
RESERVE_BYTES: Final = 8 * MIB  # Room kept for cursors, commands and trims on a full disk. guess.
SNAPSHOTS_KEPT: Final = 2  # If the newest is damaged, the one before it serves. rule.
OPEN_SEGMENTS_MAX: Final = 64  # Open files of sealed segments. guess: far below 1,024.
INDEX_CACHE_BYTES: Final = 16 * MIB  # Indexes of sealed segments held in memory. guess.
CLEAN_SIZE_EIGHTHS: Final = 15  # Cleaning begins above 15/8 of the living bytes: headers included it stays below twice. rule.
CLEAN_SLICE_BYTES: Final = 256 * KIB  # What the cleaner moves between two drains at most, or twice what was put. guess.
CLEAN_PAUSE_MS: Final = 10  # Between two slices while nothing is put: 25 MB/s. guess.
READ_PATIENCE_MS: Final = 3_000  # A read that the disk refuses counts as damage after this. rule: before a client's last try.
READ_REFUSAL_MS: Final = (
    60_000  # A refused read is forgotten after this: the next one is another trouble. guess: any client's tries are over.
)
READ_REFUSALS_MAX: Final = 10_000  # Places whose refusal is remembered; beyond, all are given their time anew. guess: 1 MB.
CLEAN_LOOKS_MAX: Final = 4  # Segments whose living bytes are counted anew at a time. measured: 2 ms each at worst.
OUTBOX_SEGMENT_BYTES: Final = 4 * MIB  # One file of an outbox. measured: bench put --size 1024; 1 MiB cost a file per block.
OUTBOX_BYTES_MAX: Final = 1024 * MIB  # An outbox refuses more than this. guess.

# --- staging -------------------------------------------------------------------------------------
STAGE_LEASE_MS: Final = 24 * 3600 * 1000  # A staged part nobody commits goes after this time without a word of its query. rule.
STAGED_PARTS_MAX: Final = 100_000  # Parts of one commit, and parts waiting at a broker. guess: tasks × topics of a batch.
QUERIES_MAX: Final = 100_000  # Queries whose last batch a broker remembers. guess: 20 MB of state.
STAGED_PART_BYTES: Final = 64  # What one part costs at most in the record of its commit. measured: 37.

# --- sessions and time ---------------------------------------------------------------------------
EPHEMERAL_LEASE_MS: Final = 24 * 3600 * 1000  # A client without an id that is silent so long is forgotten. rule.
CLOCK_JUMP_US_MAX: Final = 3600 * 1_000_000  # A larger jump of the wall clock trims nothing. rule.

# --- client --------------------------------------------------------------------------------------
REQUEST_TIMEOUT_MS: Final = 1_000  # First try; doubled each time, so that three take 7 s. peer: Lazy Pirate, 3 x 2.5 s.
REQUEST_TRIES: Final = 3  # Tries before no answer is said. peer: ZeroMQ guide, Lazy Pirate.
BACKOFF_MS: Final = 100  # First pause between tries, doubled each time. guess.
BACKOFF_MS_MAX: Final = 2_000  # Longest such pause. guess.
JOIN_PATIENCE_MS: Final = 10_000  # How long a subscription waits for a node that has not joined its mesh yet. guess.
CLOSE_TIMEOUT_MS: Final = 5_000  # How long close() flushes before it reports what stays. guess.

# --- spark ---------------------------------------------------------------------------------------
JAVA_VERSION_MIN: Final = 17  # What Spark 4 runs on. peer: Spark's own documentation.
ARCHIVE_ROWS_PER_COMMIT: Final = 4_000_000  # Rows of one commit of an archive. guess: files of some hundred megabytes.
ARCHIVE_POLL_MS: Final = 1_000  # How long an archive that has caught up waits before it looks again. guess.
REPLAY_ROWS_PER_FLUSH: Final = 100_000  # Rows a replay puts before it counts. guess: far below what an outbox takes.
AUDIT_PARTITIONS_PER_CORE: Final = 4  # Smaller pieces spill less and end more evenly. measured: 5 M events, 2 to 8 are alike.
AUDIT_PARTITION_BYTES: Final = 16 * MIB  # Histories smaller than this are judged in one piece. guess: a second of one core.
AUDIT_STREAM_MEMORY_MS: Final = 24 * 3_600_000  # How long a silent put stream is remembered by a watch. guess: a client's day.
AUDIT_STREAM_ROWS_PER_BATCH: Final = 500_000  # Rows a watch sorts at once. guess: some tens of megabytes for each topic.
SPARK_SHUFFLE_PARTITIONS: Final = 8  # Of an audit. measured: 5 M events joined on two cores; Spark's 200 costs seconds per query.
SPARK_READ_BYTES: Final = 2 * MIB  # What a task asks a broker for at once. measured: 4 MiB cost the broker twice the CPU.
SPARK_BATCH_ROWS: Final = 50_000  # Rows of one Arrow batch. measured: 10,000 to 100,000 are alike, 1,000 costs half.
SPARK_BATCH_BYTES: Final = 32 * MIB  # ... or bytes. guess: a task holds two of them.
SPARK_SPLIT_ROWS: Final = 50_000  # A range is not cut into partitions smaller than this by itself. guess: a task costs 20 ms.
SPARK_SAMPLE_BYTES: Final = 256 * KIB  # Read to learn how large messages are, for maxBytesPerTrigger. guess.
SPARK_STAGE_ROWS: Final = 10_000  # Rows of one staged block. peer: Spark's own Arrow batches have as many.
SPARK_STAGE_BYTES: Final = 4 * MIB  # ... or bytes. guess: whoever gets one message of a block holds all of it.
SPARK_PATIENCE_MS: Final = (
    60_000  # How long source and sink wait for a broker to come back. guess: a restart with a large journal.
)

# --- mesh: membership ----------------------------------------------------------------------------
MESH_ACTIVE: Final = 5  # Neighbours of a node. paper: HyParView 5.1, fan-out 4 and the one a message came from.
MESH_PASSIVE: Final = 30  # Reserve of a node. paper: HyParView 5.1, 6 x (log10 n + 1) at 10,000 nodes.
MESH_COLD: Final = 200  # Ids kept for a catastrophe. measured: mesh simulate; 100 reach 99.9 % of survivors at 95 % failed.
MESH_ACTIVE_WALK: Final = 6  # Hops of a join's walk. paper: ARWL.
MESH_PASSIVE_WALK: Final = 3  # Hops left at which a joiner is remembered. paper: PRWL.
MESH_WALKS: Final = 2  # Walks per join; each fills two places. measured: mesh simulate; the paper sends one per neighbour.
MESH_SHUFFLE_ACTIVE: Final = 3  # Neighbours named in a shuffle. paper: k_a.
MESH_SHUFFLE_PASSIVE: Final = 4  # Others named in a shuffle. paper: k_p.
MESH_SHUFFLE_TTL: Final = 5  # Hops of a shuffle, decremented first. peer: the earlier design's value, Cyclon's too.
MESH_SHUFFLE_MS: Final = 5_000  # Between two shuffles. peer: the earlier design's value.
MESH_ASK_TIMEOUT_MS: Final = 1_000  # An ask without an answer. guess: three round trips around the world.
MESH_DIAL_STAGGER_MS: Final = 100  # The next dial does not wait longer for this one. peer: "happy eyeballs" use 250.
MESH_DIALS_MAX: Final = 5  # Dials at a time. guess: as many as there are places.
MESH_REFUSALS_MAX: Final = 8  # Refusals after which a search pauses. measured: mesh simulate; nobody is short after joining.
MESH_BACKOFF_MS: Final = 1_000  # First pause of a search, doubled each time. guess.
MESH_BACKOFF_MS_MAX: Final = 120_000  # A place that parity forbids costs next to nothing. guess.
MESH_HEARTBEAT_MS: Final = 1_000  # Between two heartbeats to a neighbour. peer: memberlist probes every second.
MESH_HEARTBEAT_TIMEOUT_MS: Final = 5_000  # Silence after which a neighbour is gone. guess: five heartbeats.
MESH_HEAL_MS: Final = 30_000  # One cold id is probed this often. peer: lashup probes every 12 to 24 s, but in all.
MESH_QUARANTINE_MS: Final = 60_000  # An id proven dead is not believed from others for so long. guess: a dozen shuffles.
MESH_QUARANTINE_MAX: Final = 1_000  # Ids in quarantine. guess: 100 KB.
MESH_COLD_FAILURES_MAX: Final = 20  # A cold id that failed so often gives way to a new one. guess: hours at one probe per 30 s.
MESH_ADDRESS_BYTES_MAX: Final = 255  # Address of a node. rule: as other names.
MESH_IDS_MAX: Final = 64  # Ids named in one packet. guess: a hostile node must not fill a view with one packet.

# --- mesh: messages ------------------------------------------------------------------------------
MESH_TOPICS_MAX: Final = PUT_TOPICS_MAX  # Topics of one message of the mesh. rule: one put is one message of the mesh.
MESH_HOLD_MESSAGES: Final = 1_000  # Messages kept per link for its replacement. guess: a timeout at 200 a second.
MESH_EARLY_MESSAGES: Final = 10_000  # Messages waiting for an earlier one, over all origins. guess.
MESH_EARLY_BYTES: Final = 64 * MIB  # ... and bytes. guess: two of the largest blocks.
MESH_HOLE_GRACE_MS: Final = 500  # A hole is asked for after this. guess: a flood's slowest path.
MESH_DIGEST_GRACE_MS: Final = 3_000  # Vectors that differ so long are exchanged. rule: a few seconds.
MESH_DIGESTS_KEPT: Final = 64  # Own digests by which a neighbour that lags a little is recognised. guess.
MESH_REQUEST_TIMEOUT_MS: Final = 2_000  # What was requested and did not come is requested elsewhere. guess.
MESH_REQUEST_MESSAGES: Final = 500  # Messages of one request. guess: half a second of a slow link at 1 KiB.
MESH_OTHERS_TRIES: Final = 3  # Requests without an answer after which one of them counts as having nothing. guess.
MESH_OTHERS_ASKED: Final = 5  # Nodes in reserve asked for what a neighbour has kept long enough. guess: as many as neighbours.
MESH_RANGES_MAX: Final = 256  # Ranges of one request. guess: fits a header.
MESH_VECTOR_ENTRIES: Final = 1_000  # Origins of one packet. rule: 44 bytes each, below HEADER_BYTES_MAX.
MESH_RETENTION_MS: Final = 24 * 3600 * 1000  # How long messages are kept for others; then a hole is lost. guess: a day.
MESH_RETENTION_BYTES: Final = 10 * 1024 * MIB  # ... and how many bytes of them. guess: a day at 100 KB/s.

# --- mesh: links ---------------------------------------------------------------------------------
MESH_PORT: Final = 7000  # Where nodes listen for each other. guess: none of the well-known ones.
MESH_LINK_PACKETS: Final = 2_000  # Packets that wait for one neighbour; beyond it is too slow, and expelled. guess.
MESH_LINK_BYTES: Final = 64 * MIB  # ... and bytes of them. guess: two of the largest blocks.
MESH_LINK_BACKLOG: Final = 4  # ... and messages in each of ZeroMQ's own queues. measured: of 16 MiB 32 cost 560 MB, these 144.
MESH_LINK_BUNDLE_BYTES: Final = 1 * MIB  # Packets that wait go as one such message. measured: 4 are faster than 32 packets.
MESH_LINK_IDLE_MS: Final = 15_000  # A link nobody spoke through for so long is closed. guess: three shuffles.
MESH_LINKS_MAX: Final = 200  # Links at a time; a node has five neighbours. rule: four descriptors each, of the usual 1,024.
MESH_LINK_SPARE_MS: Final = 1_000  # One that was not used for so long gives way to a new one. guess: an ask and its answer.
MESH_SERVE_BYTES: Final = 1 * MIB  # What one drain reads for one neighbour that catches up. guess: as GET_BYTES.
MESH_SERVE_MESSAGES: Final = 500  # ... and messages. rule: a quarter of a link's places.
MESH_SERVES_MAX: Final = 1_000  # Ranges that wait to be served; what is asked beyond is asked again. guess.
MESH_TELL_WAITING_MS: Final = 5_000  # A node that finds no mesh says so after this, then less often. guess: longer than any join.
MESH_MEMORY_MS: Final = 10_000  # Who was known is written down this often, if it changed. guess.
MESH_LEAVE_MS: Final = 10_000  # How long a clean stop waits until a neighbour has everything. guess: three digest graces.
