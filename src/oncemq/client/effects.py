# SPDX-License-Identifier: Apache-2.0
"""transaction(connection): a message's effect and the place behind it, in one transaction of the application's database (R16).

May not: hand out a message before the row that counts it is locked and moved, or tell the broker of a commit before the next one.
The idea: a row per subscription holds its place. `get` locks the row, compares it and moves it, inside the transaction that the
application's own statements go into: both are committed, or neither. The row wins in both directions: a missing row is the
subscription's start, an older one reads on from there, and a place this broker never gave is Diverged. Nothing is kept here that
a crash could lose.
Next: client/databases.py for what a database must do, docs/guarantees.md for what weaker settings cost.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from types import TracebackType
from typing import Self

from oncemq.client.alone import alone
from oncemq.client.arguments import flags, milliseconds, whole
from oncemq.client.databases import Database
from oncemq.client.feeds import NO_BOOKMARK, Bookmark, Feed
from oncemq.client.gets import Gets
from oncemq.client.puts import Puts
from oncemq.client.session import Session
from oncemq.core.packets import Ack
from oncemq.core.topics import DATABASE, UNDECIDED
from oncemq.crashpoints import reach
from oncemq.errors import (
    DatabaseBusy,
    EndedEarly,
    Gap,
    NotCommitted,
    NotDurable,
    Uncertain,
    UsageError,
    WrongAuthority,
)
from oncemq.limits import GET_MANY_MAX
from oncemq.model.message import Message
from oncemq.model.names import check_topic
from oncemq.model.refusals import TEXTS, Code

TABLE = "oncemq_cursors"
NO_PUTS = (
    "a put cannot be part of a database transaction: write it into a table of your own in the same transaction and put it "
    "afterwards (docs/cookbook.md, outbox), or use client.transaction() without a connection"
)
_CREATE = """CREATE TABLE IF NOT EXISTS {table} (
    client TEXT NOT NULL, log TEXT NOT NULL, subscription BIGINT NOT NULL, topic TEXT NOT NULL,
    next_offset BIGINT NOT NULL, start_id TEXT NOT NULL, append_number BIGINT NOT NULL,
    session TEXT NOT NULL, holder TEXT NOT NULL, PRIMARY KEY (client, log, subscription))"""
_LOOK = "SELECT client FROM {table} WHERE client = ''"
_INSERT = "INSERT INTO {table} VALUES (?, ?, ?, ?, ?, '', 0, ?, ?) ON CONFLICT DO NOTHING"
_SELECT = "SELECT next_offset, start_id, append_number, session FROM {table} WHERE client = ? AND log = ? AND subscription = ?"
_CLAIM = "UPDATE {table} SET session = ?, holder = ? WHERE client = ? AND log = ? AND subscription = ?"
_MOVE = """UPDATE {table} SET next_offset = ?, start_id = ?, append_number = ?
    WHERE client = ? AND log = ? AND subscription = ? AND next_offset = ? AND session = ?"""
_HOLDERS = "SELECT DISTINCT holder FROM {table} WHERE client = ?"


class Place:
    """Where a subscription stands in this transaction: where its row was, and where it is now."""

    def __init__(self, feed: Feed, begin: int) -> None:
        self.feed = feed
        self.begin = self.now = begin


class Table:
    """The rows of one client in one database. All of it runs inside the transaction that is open there."""

    def __init__(self, database: Database, name: str, session: Session) -> None:
        self.database = database
        self._name = name
        self._session = session
        self._me = f"process {os.getpid()} on {socket.gethostname()}"

    def _run(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self.database.execute(statement.format(table=self._name), values)]

    def create(self) -> None:
        """Make the table unless it is there: somebody else may have made it for whom may not, or be making it right now."""
        if self._is_there():
            return
        try:
            self.database.begin()
            self._run(_CREATE)
            self.database.commit()
        except BaseException as problem:
            _roll_back(self.database, problem)
            if not (isinstance(problem, Exception) and self._is_there()):
                self._expect_name(problem)
                raise

    def _expect_name(self, problem: BaseException) -> None:
        """Nothing but its name can be wrong in the statement that makes the table."""
        if type(problem).__name__ == "SyntaxError" or "syntax error" in str(problem) or "name reserved" in str(problem):
            raise UsageError(
                f"table {self._name!r} has a name that this database keeps for itself: take another one, "
                f"for example {'oncemq_' + self._name!r}"
            ) from problem

    def _is_there(self) -> bool:
        try:
            self._run(_LOOK)
        except Exception:  # Each database has another one for a table that is not there.
            return False
        finally:
            self.database.rollback()
        return True

    def lock(self, feed: Feed) -> tuple[int, Bookmark, bytes]:
        """Lock the row, which is made if it is missing; return its place, its bookmark and whose it is."""
        key, select = self._key(feed), _SELECT.format(table=self._name)
        rows = self.database.lock_row(select, key)
        if not rows:  # Only then: an INSERT waits for whoever holds the row, and not every database lets go of it in time.
            self._run(_INSERT, *key, feed.info.topic, feed.info.start, self._session.id.hex(), self._me)
            rows = self.database.lock_row(select, key)
        ((offset, start_id, append_number, session),) = rows
        return offset, (bytes.fromhex(start_id) or NO_BOOKMARK[0], append_number), bytes.fromhex(session)

    def claim(self, feed: Feed) -> None:
        """Make the row ours: from now on the compare-and-swap of an earlier session fails."""
        self._run(_CLAIM, self._session.id.hex(), self._me, *self._key(feed))

    def move(self, feed: Feed, begin: int) -> None:
        """Compare and swap: the row goes behind what was just handed out, if it is ours and still stands where it stood."""
        start_id, append_number = feed.bookmark
        where = (*self._key(feed), begin, self._session.id.hex())
        self._run(_MOVE, feed.place, start_id.hex(), append_number, *where)
        if self.offset(feed) != feed.place:
            raise NotCommitted(Code.CURSOR_MOVED, TEXTS[Code.CURSOR_MOVED])

    def offset(self, feed: Feed) -> object:
        """Where the row stands; None if there is none."""
        rows = self._run(_SELECT, *self._key(feed))
        return rows[0][0] if rows else None

    def settled_offset(self, feed: Feed) -> object:
        """Where the row stands once nobody holds it any more: a commit without an answer may still be on its way."""
        return self.lock(feed)[0]

    def holders(self) -> str:
        """Which processes made rows of this client theirs last."""
        return ", ".join(sorted(str(row[0]) for row in self._run(_HOLDERS, self._session.state.identity.client)))

    def elsewhere(self, database: Database) -> Table:
        return Table(database, self._name, self._session)

    def _key(self, feed: Feed) -> tuple[str, str, int]:
        welcome = self._session.welcome
        log = welcome.log_id.hex() if welcome is not None else ""
        return self._session.state.identity.client, log, feed.info.subscription_id


def _roll_back(database: Database, problem: BaseException | None) -> None:
    """Roll back because of a problem, which is what the application is told: a rollback that fails is a note on it."""
    try:
        database.rollback()
    except Exception as trouble:
        if problem is None:
            raise
        problem.add_note(
            f"the rollback failed, too ({type(trouble).__name__}: {str(trouble).strip()}): close the connection, which makes the "
            "database roll back by itself, and go on with another one"
        )


class Effects:
    """The database transactions of one client."""

    def __init__(self, session: Session, puts: Puts, gets: Gets) -> None:
        self.session = session
        self._puts = puts
        self._gets = gets
        self._prepared: dict[str, object] = {}
        """The connection that each table was last seen on."""
        self._durable: object = None
        """The connection whose settings were last seen to be durable."""
        self._current: DatabaseTransaction | None = None
        self.is_shared = False
        """Whether several tasks use this client: puts of others are then no mistake of whoever has the transaction."""

    @property
    def is_open(self) -> bool:
        return self._current is not None

    def open(self, transaction: DatabaseTransaction) -> None:
        """No puts until `close`: they would not be part of the transaction."""
        if self.is_open:
            raise UsageError("a client has one transaction at a time: leave the other one first")
        self._puts.cut_all()
        self._current, self._puts.forbidden = transaction, "" if self.is_shared else NO_PUTS

    def close(self, transaction: DatabaseTransaction) -> None:
        """Saying so again, or of a transaction that was never opened, changes nothing."""
        if self._current is transaction:
            self._current, self._puts.forbidden = None, ""

    def prepare(self, table: Table, connection: object, name: str, *, durable: bool) -> None:
        """Check a connection and make the table, when they are first seen."""
        database = table.database
        if database.is_in_transaction():
            raise UsageError(
                "the connection is inside a transaction already: commit or roll it back before client.transaction(connection), "
                "so that effects and place are committed by the same one (a sqlite3 connection with autocommit=False is always "
                "inside one: leave autocommit as it is by default)"
            )
        self._expect_durable(database, connection, durable=durable)
        if self._prepared.get(name) is not connection:
            table.create()
            self._prepared[name] = connection

    def _expect_durable(self, database: Database, connection: object, *, durable: bool) -> None:
        """Look at the settings of a connection when it must first be durable, and after each time that it need not be."""
        if not durable:
            self._durable = None
        elif self._durable is not connection:
            if weakness := database.weakness():
                raise NotDurable(weakness)
            self._durable = connection

    def feed(self, topic: str) -> Feed:
        held = self._gets.find(topic)
        feed = held.feed
        if feed is None or feed.authority != DATABASE:
            if held.subscriber.authority not in {UNDECIDED, DATABASE}:
                raise WrongAuthority(Code.WRONG_AUTHORITY, TEXTS[Code.WRONG_AUTHORITY])
            start = held.subscriber.info.start
            feed = held.feed = Feed(self.session, held.subscriber, DATABASE, place=start, bookmark=NO_BOOKMARK)
        return feed

    def lock(self, table: Table, feed: Feed) -> Place:
        """Lock the row, make it ours, and set the feed to where it stands: the row wins."""
        offset, bookmark, session = table.lock(feed)
        if session != self.session.id:
            if feed.is_ours:
                self._expect_current(feed)
            table.claim(feed)
        feed.is_ours = True
        if feed.place != feed.behind(offset):
            feed.set_back(offset, bookmark)
        return Place(feed, offset)

    def _expect_current(self, feed: Feed) -> None:
        """The row was ours and somebody else made it his. Only the broker knows who came later: it refuses the earlier one."""
        info = feed.info
        self.session.ask(Ack(self.session.id, info.subscription_id, info.topic_id, feed.done, DATABASE, True))


class DatabaseTransaction:
    """What `client.transaction(connection)` returns. Leaving it without an exception commits; with one, it rolls back."""

    def __init__(self, effects: Effects, database: Database, connection: object, name: str, *, durable: bool) -> None:
        flags(durable=durable)
        if not isinstance(name, str):
            raise UsageError(f"a table is named by text, not {type(name).__name__}: leave it out for {TABLE!r}")
        if not name.replace("_", "a").isalnum() or not name.isascii() or name[:1].isdigit():
            raise UsageError(f"table {name[:60]!r} is not valid: use ASCII letters, digits and '_', not beginning with a digit")
        self._effects = effects
        self._alone = effects.session.alone
        self._database = database
        self._table = Table(database, name, effects.session)
        self._how = connection, name, durable
        self._places: dict[str, Place] = {}
        self._has_begun = self._is_open = self._is_used = False

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException as problem:
            self._end(problem)
            raise
        return self

    @alone
    def _enter(self) -> None:
        if self._is_used:
            raise UsageError("a transaction is used once: ask the client for another one")
        self._is_used = True
        connection, name, durable = self._how
        self._effects.session.ensure()
        try:
            self._effects.prepare(self._table, connection, name, durable=durable)
        except DatabaseBusy as problem:
            raise self._busy(problem) from problem
        self._effects.open(self)
        self._has_begun = True
        self._begin()
        self._is_open = True

    def get(self, topic: str, timeout: float | None = None) -> Message | None:
        """Return the next message of a topic; its effects and its place are committed together. None if none came in time."""
        found = self.get_many(topic, 1, timeout)
        return found[0] if found else None

    @alone
    def get_many(self, topic: str, count: int = 1000, timeout: float | None = None) -> list[Message]:
        """Return up to `count` messages as soon as there is one; [] if none came in time."""
        self._check_open()
        whole(count, "the count of get_many", 1)
        if not self._database.is_in_transaction():
            raise EndedEarly()  # Now: with autocommit the row would move by itself, and the effect be left behind.
        place = self._wait(check_topic(topic), milliseconds(timeout))
        self._check_open()  # On an event loop the block may have been left meanwhile.
        before = place.feed.place, place.feed.bookmark
        found: list[Message] = []
        try:
            while len(found) < min(count, GET_MANY_MAX) and place.feed.has_message():
                found.append(place.feed.take())
            if found:
                self._move(place)
        except BaseException:
            place.feed.set_back(*before)  # They were not returned, so this transaction does not count them.
            raise
        return found

    def put(self, *_: object, **__: object) -> None:
        """Refused: a put cannot be committed by the database."""
        raise UsageError(NO_PUTS)

    def _wait(self, topic: str, timeout_ms: int | None) -> Place:
        """Have a message and the row locked. Waiting is done without the lock where the database lets go of it."""
        clock = self._effects.session.clock
        due_ms = None if timeout_ms is None else clock.now().ticks_ms + timeout_ms
        while True:
            place = self._places.get(topic) or self._lock(topic)
            left_ms = None if due_ms is None else max(0, due_ms - clock.now().ticks_ms)
            if place.feed.has_message():
                return place
            if not self._wait_freely(topic, place, left_ms):
                is_behind_gap = topic not in self._places and place.feed.place > place.begin
                return self._lock(topic) if is_behind_gap else place  # What was told is accepted by a transaction that ends well.

    def _wait_freely(self, topic: str, place: Place, timeout_ms: int | None) -> bool:
        """Wait for a message, without the transaction if nothing was done in it yet; False if none came in time."""
        if not (self._are_untouched() and self._database.let_go()):
            return place.feed.wait(timeout_ms)
        self._places.clear()
        try:
            is_there = place.feed.wait(timeout_ms)
        except BaseException as problem:
            if self._is_open:
                self._resume(topic, place, problem)
            raise
        self._check_open()  # What is over has nothing open in the application's database any more.
        self._begin()
        return is_there

    def _resume(self, topic: str, place: Place, problem: BaseException) -> None:
        """Have a transaction again before the application is told of a problem; of a gap: going on inside moves behind it."""
        try:
            self._begin()
            if isinstance(problem, Gap):
                self._table.lock(place.feed)
                self._table.claim(place.feed)
                self._places[topic] = place
        except BaseException:
            if isinstance(problem, Gap):
                place.feed.untell(problem)  # It hears of this instead.
            raise

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError("this transaction is over: use it inside its with block")

    def _are_untouched(self) -> bool:
        return all(
            place.now == place.begin and place.feed.place == place.feed.behind(place.now) for place in self._places.values()
        )

    def _begin(self) -> None:
        try:
            self._database.begin()
        except DatabaseBusy as problem:
            raise self._busy(problem) from problem

    def _lock(self, topic: str) -> Place:
        try:
            place = self._effects.lock(self._table, self._effects.feed(topic))
        except DatabaseBusy as problem:
            raise self._busy(problem) from problem
        self._places[topic] = place
        return place

    def _busy(self, problem: DatabaseBusy) -> DatabaseBusy:
        """The same problem, with who holds it. Reading is possible while somebody else writes."""
        _roll_back(self._database, problem)
        holders = ""
        with suppress(Exception):  # There may be no table yet.
            holders = self._table.holders()
        _roll_back(self._database, problem)
        return DatabaseBusy(problem.reason, holders)

    def _move(self, place: Place) -> None:
        reach("client.before_row")
        self._table.move(place.feed, place.now)
        place.now = place.feed.place
        reach("client.after_row")

    # --- leaving ---------------------------------------------------------------------------------------

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._leave(error, is_done=kind is None)
        except BaseException as problem:
            self._end(problem)
            raise

    @alone
    def _leave(self, error: BaseException | None, *, is_done: bool) -> None:
        self._is_open = False
        if is_done:
            self._finish()
            self._has_begun = False  # Nothing is left to roll back: a failure of that would look like one of the commit.
        self._end(error)

    def _end(self, problem: BaseException | None) -> None:
        """Whatever is left of it must not hold the application's connection, nor the client. Interrupted, it is done again."""
        self._is_open = False
        try:
            if self._has_begun:
                _roll_back(self._database, problem)
            self._has_begun = False
        except Exception:
            self._has_begun = False  # Not once more: the rollback failed, which is told.
            raise
        finally:
            self._effects.close(self)

    def _finish(self) -> None:
        if not self._database.is_in_transaction():
            raise EndedEarly()
        for place in self._places.values():
            if place.feed.place > place.now:
                self._move(place)  # A gap that the application was told and went on from.
        if not (self._are_moved() and self._database.release()):
            raise EndedEarly()
        self._commit()

    def _are_moved(self) -> bool:
        """Whether the rows stand where they were moved to: a savepoint set before `get` and rolled back takes them back."""
        moved = [place for place in self._places.values() if place.now != place.begin]
        return all(self._table.offset(place.feed) == place.now for place in moved)

    def _commit(self) -> None:
        reach("client.before_database_commit")
        try:
            self._database.commit()
        except Exception as problem:
            self._find_out(problem)
        reach("client.after_database_commit")
        for place in self._places.values():
            place.feed.done = max(place.feed.done, place.begin)  # One transaction late: a database may lose its last commit.
            place.feed.forget_passed(place.now)

    def _find_out(self, problem: Exception) -> None:
        """The commit failed or was not answered: read the rows back on another connection; raise if it did not happen."""
        moved = [place for place in self._places.values() if place.now != place.begin]
        if not moved:
            raise problem
        _roll_back(self._database, problem)  # What is still open here was not committed, and would hold the row.
        try:
            other = self._database.reopened()
        except Exception as trouble:
            raise Uncertain(f"{problem}; and the database cannot be asked: {trouble}") from problem
        try:
            rows = [self._table.elsewhere(other).settled_offset(place.feed) for place in moved]
        except DatabaseBusy as trouble:
            raise Uncertain(f"{problem}; and its outcome is not decided yet: {trouble}") from problem
        finally:
            other.close()
        if rows != [place.now for place in moved]:
            raise problem
