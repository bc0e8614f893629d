"""The schema beside LangGraph's two tables, and the numbered steps from any older one to it."""

from __future__ import annotations

import sqlite3
from functools import cache

from echelons.checkpoints.clock import Clock
from echelons.checkpoints.ledger import build_key
from echelons.checkpoints.storage.seals import SEALS_SCHEMA
from echelons.errors import StorageError

_METADATA_FIELD = "json_extract(CAST(metadata AS TEXT), '$.{}')"
# Exactly the expression of LangGraph's metadata filter, or SQLite would not use the index.
_AGENT_THREAD = _METADATA_FIELD.format("agent_thread_id")

# Built from the constants above, never from input.
EVENTS_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL,
    agent_thread_id TEXT NOT NULL,
    agent_path TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (thread_id, agent_thread_id, kind, key)
);
CREATE INDEX IF NOT EXISTS questions ON events (thread_id, key) WHERE kind = 'question';
CREATE INDEX IF NOT EXISTS checkpoints_by_agent_thread ON checkpoints ({_AGENT_THREAD});
CREATE VIEW IF NOT EXISTS threads AS
SELECT
    thread_id,
    {_AGENT_THREAD} AS agent_thread_id,
    {_METADATA_FIELD.format("agent")} AS agent,
    {_METADATA_FIELD.format("agent_path")} AS agent_path,
    {_METADATA_FIELD.format("superior_thread_id")} AS superior_thread_id,
    max({_METADATA_FIELD.format("thread_name")}) AS thread_name,
    count(*) AS checkpoints,
    max(checkpoint_id) AS latest_checkpoint_id
FROM checkpoints
WHERE {_AGENT_THREAD} IS NOT NULL
GROUP BY thread_id, agent_thread_id;
"""  # noqa: S608

_LEDGER_VALUES = """CREATE TABLE ledger_values (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL,
    at TEXT NOT NULL,
    value TEXT NOT NULL
);
"""

LEDGER = f"""
CREATE TABLE ledger_entries (
    id INTEGER PRIMARY KEY,
    stream TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    at TEXT NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (stream, sequence)
);
{_LEDGER_VALUES}CREATE TABLE ledger_floor (version INTEGER NOT NULL);
INSERT INTO ledger_floor VALUES (0);
CREATE TABLE ledger_leases (
    name TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    since TEXT NOT NULL
);
"""  # noqa: S608

_CALL_ID = "json_extract(data, '$.call_id')"
# An event's key is `message id/call id`, with `/part number` after it for a part of a call.
_KEY_SUFFIX = "substr(key, instr(key, '/') + 1)"

# The answer is a few rows ahead: `NOT INDEXED` makes SQLite walk there instead of sorting.
_RESPONDED_TABLES = f"""WITH called AS (
    SELECT *, coalesce({_CALL_ID}, {_KEY_SUFFIX}) AS call_id,
        CAST(substr({_KEY_SUFFIX}, length({_CALL_ID}) + 2) AS INTEGER) AS part,
        json_extract(data, '$.sub_agent_thread_id') AS sub_agent_thread_id
    FROM events WHERE kind = 'delegation'
), answered AS (
    SELECT called.*, answer.at AS answered_at, json_extract(answer.data, '$.artifact') AS whole
    FROM called LEFT JOIN events AS answer ON answer.id = (
        SELECT id FROM events AS later NOT INDEXED
        WHERE later.id > called.id AND later.kind = 'message'
            AND later.thread_id = called.thread_id
            AND later.agent_thread_id = called.agent_thread_id
            AND json_extract(later.data, '$.tool_call_id') = called.call_id
        ORDER BY later.id LIMIT 1
    )
), responded AS (
    SELECT *, CASE WHEN part > 0 THEN coalesce(
        (SELECT value FROM json_each(whole, '$.subordinate_responses')
            WHERE json_extract(value, '$.thread_id') = sub_agent_thread_id),
        json_extract(whole, '$.subordinate_responses[' || (part - 1) || ']')
    ) ELSE whole END AS response
    FROM answered
"""  # noqa: S608

# Databases from before this step may have a view of that name with fewer columns.
DELEGATIONS_VIEW = f"""
DROP VIEW IF EXISTS delegations;
CREATE VIEW delegations AS
{_RESPONDED_TABLES}), attempted AS (
    SELECT responded.*, coalesce(attempt.value, response) AS said,
        coalesce(json_extract(attempt.value, '$.thread_id'), sub_agent_thread_id) AS own_thread_id,
        coalesce(attempt.key, 0) + 1 AS attempt
    FROM responded LEFT JOIN json_each(response, '$.subordinate_responses') AS attempt
        ON json_extract(attempt.value, '$.thread_id') <> ''
        AND json_extract(attempt.value, '$.request_id') = json_extract(response, '$.request_id')
)
SELECT
    thread_id,
    agent_thread_id AS superior_thread_id,
    agent_path AS superior_path,
    own_thread_id AS sub_agent_thread_id,
    json_extract(data, '$.arguments.subordinate') AS subordinate,
    json_extract(data, '$.arguments.message') AS task,
    at,
    coalesce(json_extract(said, '$.request_id'), json_extract(data, '$.request.id')) AS request_id,
    json_extract(data, '$.request.origin') AS origin,
    iif(attempt > 1, json_extract(said, '$.path[1]'), json_extract(data, '$.request.current'))
        AS current,
    json_array_length(data, '$.request.path') - 1 AS hops,
    coalesce(json_extract(data, '$.request.max_hops'), 10) AS max_hops,
    json_extract(data, '$.request.context') AS context,
    iif(attempt > 1, NULL,
        (SELECT group_concat(value, '/') FROM json_each(data, '$.request.route'))) AS route,
    iif(attempt > 1, NULL, json_extract(data, '$.request.deadline')) AS deadline,
    iif(attempt > 1, NULL, json_extract(data, '$.request.budget.seconds')) AS budget_seconds,
    attempt,
    json_extract(said, '$.status') AS status,
    json_extract(said, '$.agent') AS agent,
    json_extract(said, '$.result') AS result,
    json_extract(said, '$.partial_results') AS partial_results,
    iif(said IS NULL, NULL, coalesce(json_extract(said, '$.confidence'), 0.0)) AS confidence,
    (SELECT group_concat(value, '/') FROM json_each(said, '$.path')) AS path,
    iif(said IS NULL, NULL, coalesce(json_extract(said, '$.reason'), '')) AS reason,
    iif(said IS NULL, NULL, coalesce(json_extract(said, '$.usage.input_tokens'), 0))
        AS input_tokens,
    iif(said IS NULL, NULL, coalesce(json_extract(said, '$.usage.output_tokens'), 0))
        AS output_tokens,
    iif(said IS NULL, NULL, coalesce(json_extract(said, '$.usage.model_calls'), 0))
        AS model_calls,
    iif(said IS NULL, NULL, answered_at) AS answered_at
FROM attempted;
"""  # noqa: S608
"""The view of delegations: one row for each attempt, with its own thread and cost; the columns of
the response are `NULL` while it is open."""

# The key had the names of the root and of the agent; events have the paths of all agents that
# were asked. A tree may be embedded, so its root need not be the first name of a path. Names have
# no character that `GLOB` knows. `EXISTS`: a database without circuits reads no events.
CIRCUITS_BY_PATH = """
INSERT OR IGNORE INTO ledger_values (key, version, at, value)
SELECT 'circuit//' || path, version, at, value
FROM (
    SELECT version, at, value,
        substr(key, 9, instr(substr(key, 9), '/') - 1) AS tree,
        substr(key, 9 + instr(substr(key, 9), '/')) AS agent
    FROM ledger_values WHERE key GLOB 'breaker/*'
) JOIN (
    SELECT DISTINCT agent_path AS path FROM events
    WHERE EXISTS (SELECT 1 FROM ledger_values WHERE key GLOB 'breaker/*')
) ON '/' || path GLOB '*/' || tree || '/*' AND '/' || path GLOB '*/' || agent;
DELETE FROM ledger_values WHERE key GLOB 'breaker/*';
UPDATE OR REPLACE ledger_values
SET key = 'intensity//' || substr(key, 11 + instr(substr(key, 11), '/'))
WHERE key GLOB 'intensity/*';
"""
"""Circuits by the path of their agent. One of an agent that no event knows is dropped; one of a
name that two trees have at different places is kept for each."""

USER_ACTIONS_VIEW = """
CREATE VIEW IF NOT EXISTS user_actions AS
SELECT thread_id, agent_thread_id, agent_path, at, kind,
    json_extract(data, '$.by') AS given_by,
    json_extract(data, '$.question') AS question_id,
    CASE kind
        WHEN 'answer' THEN json_extract(data, '$.value')
        WHEN 'approval' THEN json_extract(data, '$.decisions')
        ELSE json_extract(data, '$.order')
    END AS value
FROM events WHERE kind IN ('answer', 'approval', 'order')
ORDER BY id;
"""
"""The view of what people gave agents: answers, decisions on their calls, and orders."""

# A path without its last name: `rtrim` takes away all characters that are none of a separator.
AGENTS_VIEW = """
CREATE VIEW IF NOT EXISTS agents AS
SELECT thread_id, agent_path,
    length(agent_path) - length(replace(agent_path, '/', '')) AS level,
    rtrim(rtrim(agent_path, replace(agent_path, '/', '')), '/') AS superior_path,
    json_group_array(agent_thread_id) AS thread_ids,
    min(begun_at) AS since
FROM (
    SELECT thread_id, agent_thread_id, agent_path, min(at) AS begun_at
    FROM events WHERE kind = 'message' GROUP BY thread_id, agent_thread_id
) GROUP BY thread_id, agent_path;
"""
"""The view of the agents of each root's thread that have begun, on any branch."""

# Cast: a column without a type gets no index for a join, which then takes the square of the time.
AGENTS_VIEW_WITH_KINDS = """
DROP VIEW agents;
CREATE VIEW agents AS
SELECT thread_id, agent_path,
    length(agent_path) - length(replace(agent_path, '/', '')) AS level,
    rtrim(rtrim(agent_path, replace(agent_path, '/', '')), '/') AS superior_path,
    coalesce(max(made.kind), 'declared') AS kind,
    max(named.alias) AS alias,
    json_group_array(agent_thread_id) AS thread_ids,
    min(begun_at) AS since
FROM (
    SELECT thread_id, agent_thread_id, agent_path, min(at) AS begun_at
    FROM events WHERE kind = 'message' GROUP BY thread_id, agent_thread_id
) LEFT JOIN (
    SELECT thread_id AS root_id,
        CAST(json_extract(data, '$.sub_agent_thread_id') AS TEXT) AS own_id,
        max(json_extract(data, '$.kind')) AS kind
    FROM events WHERE kind = 'delegation' AND json_valid(data)
        AND json_extract(data, '$.kind') IS NOT NULL
    GROUP BY root_id, own_id
) AS made ON made.root_id = thread_id AND made.own_id = agent_thread_id
LEFT JOIN (
    SELECT CAST(json_extract(value, '$.root_thread') AS TEXT) AS root_id,
        CAST(json_extract(value, '$.path') AS TEXT) AS path,
        max(json_extract(value, '$.alias')) AS alias
    FROM ledger_values WHERE key GLOB 'thread/*/alias/*' AND json_valid(value)
    GROUP BY root_id, path
) AS named ON named.root_id = thread_id AND named.path = agent_path
GROUP BY thread_id, agent_path;
"""
"""The same with the kind of those that were made at run time, and their names for people."""

_CALLED = f"""
SELECT id, thread_id, agent_thread_id, agent_path, at, {_KEY_SUFFIX} AS call_id,
    iif(json_valid(data), json_extract(data, '$.intent'), '') AS tool
FROM events WHERE kind = 'tool_call'
"""  # noqa: S608
_ANSWERED = """
SELECT thread_id, agent_thread_id, json_extract(data, '$.tool_call_id')
FROM events
WHERE kind = 'message' AND iif(json_valid(data), json_extract(data, '$.tool_call_id'), '') > ''
"""

# At first step 2 made the versions of all keys one sequence, and had no floor for them. A table is
# copied, not renamed: SQLite would read the whole schema again, half the time of a new database.
_TODAYS_LEDGER = f"""
CREATE TABLE ledger_values_before AS SELECT key, version, at, value FROM ledger_values;
DROP TABLE ledger_values;
{_LEDGER_VALUES}INSERT INTO ledger_values (key, version, at, value)
SELECT key, version, at, value FROM ledger_values_before;
DROP TABLE ledger_values_before;
CREATE TABLE IF NOT EXISTS ledger_floor (version INTEGER NOT NULL);
INSERT INTO ledger_floor SELECT (SELECT coalesce(max(version), 0) FROM ledger_values)
WHERE NOT EXISTS (SELECT 1 FROM ledger_floor);
"""  # noqa: S608

# Without a journal only the events show which calls may have begun; which task made one is not
# stored, so the key has the agent and the call.
OPEN_CALLS = f"""{_TODAYS_LEDGER}
INSERT OR IGNORE INTO ledger_values (key, version, at, value)
SELECT build_key(thread_id, 'effect', agent_path, call_id), 1, at, json_object(
    'state', 'started', 'at', at, 'tool', tool, 'agent_path', agent_path, 'call_id', call_id
) FROM ({_CALLED})
WHERE (thread_id, agent_thread_id, call_id) NOT IN ({_ANSWERED})
ORDER BY id DESC;
INSERT OR IGNORE INTO ledger_values (key, version, at, value)
SELECT DISTINCT build_key(thread_id, 'asked', task_id), 1, '', 'true'
FROM writes AS asked WHERE channel = '__interrupt__' AND NOT EXISTS (
    SELECT 1 FROM writes WHERE channel = '__resume__'
        AND thread_id = asked.thread_id AND task_id = asked.task_id
);
"""  # noqa: S608
"""Entries of the journal for the calls that are open in a database of step 3 or earlier.

The last statement marks the tasks that wait for an answer and have not had one: they have not come
past their question.
"""

# An entry has the id of its request since the key has changed.
CALLS_BY_POSITION = f"""{_TODAYS_LEDGER}
UPDATE OR REPLACE ledger_values
SET key = substr(key, 1, instr(key, '/effect/') + 7)
    || json_extract(value, '$.agent_path') || '/' || json_extract(value, '$.call_id')
WHERE key GLOB 'thread/*/effect/*' AND iif(json_valid(value),
    json_type(value, '$.arguments') = 'text' AND json_type(value, '$.request') IS NULL
    AND json_type(value, '$.agent_path') = 'text' AND json_type(value, '$.call_id') = 'text', 0);
INSERT OR IGNORE INTO ledger_values (key, version, at, value)
SELECT 'effect//earlier', 1, '', 'true'
WHERE EXISTS (SELECT 1 FROM ledger_values WHERE key GLOB 'thread/*/effect/*/*');
CREATE TABLE ledger_leases_before AS SELECT name, epoch, pid, since FROM ledger_leases;
DROP TABLE ledger_leases;
CREATE TABLE ledger_leases (
    name TEXT PRIMARY KEY,
    epoch INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    since TEXT NOT NULL,
    host TEXT NOT NULL DEFAULT ''
);
INSERT INTO ledger_leases (name, epoch, pid, since)
SELECT name, epoch, pid, since FROM ledger_leases_before;
DROP TABLE ledger_leases_before;
"""  # noqa: S608
"""Entries of the journal that are kept by `EffectCall.id` move to the keys of `OPEN_CALLS`.

A database that has any is marked. Leases get the host of their holder.
"""

_WHOLE = "json_extract(answer.data, '$.artifact') AS whole"
_RESTORED = """CASE json_type(answer.data, '$.artifact.result') WHEN 'null' THEN json_set(
        json_extract(answer.data, '$.artifact'), '$.result', json_extract(answer.data, '$.content')
    ) ELSE json_extract(answer.data, '$.artifact') END AS whole"""

RESULTS_IN_CONTENT = DELEGATIONS_VIEW.replace(_WHOLE, _RESTORED)
"""The view of delegations, which reads a result that its event has only as content."""

_ANSWERED_AT = "    iif(said IS NULL, NULL, answered_at) AS answered_at\n"
_REPLY_END = "    iif(said IS NULL, NULL, coalesce(json_extract(said, '$.end'), '')) AS reply_end\n"
DELEGATIONS_WITH_ENDS = RESULTS_IN_CONTENT.replace(
    _ANSWERED_AT, f"{_ANSWERED_AT[:-1]},\n{_REPLY_END}"
)
"""The view of delegations, which says how the last reply of each answer ended."""

# The parts of a key: `thread/`, the quoted id of the root's thread, the kind, and what comes after.
_QUOTED_THREAD = "substr(key, 8, instr(substr(key, 8), '/') - 1)"
_KEY_REST = f"substr(key, length({_QUOTED_THREAD}) + 9)"


def _select_records(kind: str) -> str:
    """Return the query of the records of a kind that belong to threads."""
    return f"""SELECT id, at, json_valid(value) AS whole,
    iif(json_valid(value), value, '{{}}') AS record,
    {_QUOTED_THREAD} AS quoted_thread_id, substr({_KEY_REST}, {len(kind) + 2}) AS rest
    FROM ledger_values
    WHERE key GLOB 'thread/*/{kind}/*' AND {_KEY_REST} GLOB '{kind}/*'"""  # noqa: S608


def _check_amount(name: str) -> str:
    """Return the condition that a column has an amount, of money as a text."""
    text = f"{name} NOT GLOB '*[^0-9.]*'"
    return f"iif(unit = 'money', {text}, typeof({name}) <> 'text' AND {name} >= 0)"


# A reply counts where it was written: the answer of a graph, a Runnable or a function is the last
# reply within it once more, if models have replied within. Where a call was charged, the charge
# counts and not the reply.
USAGE_VIEWS = f"""
CREATE VIEW IF NOT EXISTS usage AS
WITH RECURSIVE charges AS (
    SELECT id, at, whole,
        coalesce(json_extract(record, '$.thread_id'), quoted_thread_id) AS thread_id,
        coalesce(json_extract(record, '$.agent_thread_id'), '') AS agent_thread_id,
        coalesce(json_extract(record, '$.path'), '') AS agent_path,
        coalesce(json_extract(record, '$.kind'), '') AS kind,
        iif(whole, coalesce(json_extract(record, '$.state'), 'damaged'), 'damaged') AS state,
        coalesce(json_extract(record, '$.model'), '') AS model,
        coalesce(json_extract(record, '$.input_tokens'), 0) AS input_tokens,
        coalesce(json_extract(record, '$.output_tokens'), 0) AS output_tokens,
        coalesce(json_extract(record, '$.cached_tokens'), 0) AS cached_tokens,
        coalesce(json_extract(record, '$.tokens'), 0) AS tokens,
        nullif(json_extract(record, '$.money'), '') AS money,
        coalesce(json_extract(record, '$.currency'), '') AS currency,
        coalesce(json_extract(record, '$.checkpoint_ns'), '') AS checkpoint_ns,
        coalesce(json_extract(record, '$.checkpoint_id'), '') AS checkpoint_id
    FROM ({_select_records("charge")})
), calls AS (
    SELECT id, at, thread_id, agent_thread_id, agent_path, checkpoint_ns, checkpoint_id,
        iif(kind = 'message', 'model', 'tool') AS kind, held, record,
        json_extract(record, '$.intent') AS tool
    FROM (
        SELECT *, iif(json_valid(data), data, '{{}}') AS record,
            iif(json_valid(data), json_type(data, '$.usage'), 'damaged') AS held
        FROM events WHERE kind IN ('message', 'tool_call')
    )
    WHERE kind = 'tool_call' OR held IS NOT NULL
), run_levels (thread_id, checkpoint_ns, stop) AS (
    SELECT DISTINCT thread_id, checkpoint_ns, instr(checkpoint_ns, '|run:')
    FROM calls WHERE kind = 'model' AND instr(checkpoint_ns, '|run:') > 0
    UNION ALL
    SELECT thread_id, checkpoint_ns, stop + instr(substr(checkpoint_ns, stop + 1), '|run:')
    FROM run_levels WHERE instr(substr(checkpoint_ns, stop + 1), '|run:') > 0
)
SELECT thread_id, agent_thread_id, agent_path, at, kind,
    CASE WHEN held = 'damaged' THEN held
        WHEN kind = 'tool' THEN 'reported'
        WHEN held = 'null' THEN 'unknown'
        WHEN coalesce(json_extract(record, '$.usage.input_tokens'),
            json_extract(record, '$.usage.output_tokens')) IS NULL AND held = 'object'
            THEN 'unknown'
        WHEN json_type(record, '$.usage.input_tokens') = 'integer'
            AND json_type(record, '$.usage.output_tokens') = 'integer'
            AND json_extract(record, '$.usage.input_tokens') >= 0
            AND json_extract(record, '$.usage.output_tokens') >= 0 THEN 'reported'
        ELSE 'damaged' END AS state,
    iif(kind = 'model', coalesce(json_extract(record, '$.model'), ''), tool) AS name,
    coalesce(json_extract(record, '$.usage.input_tokens'), 0) AS input_tokens,
    coalesce(json_extract(record, '$.usage.output_tokens'), 0) AS output_tokens,
    coalesce(json_extract(record, '$.usage.input_token_details.cache_read'), 0) AS cached_tokens,
    0 AS charged_tokens, NULL AS money, '' AS currency
FROM calls
WHERE iif(kind = 'tool',
    coalesce(tool, '') NOT IN ('ask_later', 'ask_superior', 'ask_user', 'call_subordinate',
        'delegate_many', 'dismiss_subordinate', 'pin', 'read_result', 'recall', 'report',
        'send_message', 'spawn_subordinate'),
    (thread_id, checkpoint_ns) NOT IN (
        SELECT thread_id, substr(checkpoint_ns, 1, stop - 1) FROM run_levels
    ) AND (agent_thread_id, checkpoint_ns, checkpoint_id) NOT IN (
        SELECT agent_thread_id, checkpoint_ns, checkpoint_id FROM charges WHERE kind = 'model'
    ))
UNION ALL
SELECT thread_id, agent_thread_id, agent_path, at, kind, state, model,
    input_tokens, output_tokens, cached_tokens,
    max(tokens - input_tokens - output_tokens, 0), money, currency
FROM charges WHERE kind <> 'tool' OR state IN ('lost', 'damaged');
CREATE VIEW IF NOT EXISTS grants AS
SELECT thread_id, turn_id, grant_id, agent_path, at, unit, granted, spent, reserved,
    iif(closed OR damaged, 0, max(iif(unit = 'money', round(unspent, 9), unspent), 0)) AS free,
    max(iif(unit = 'money', round(-unspent, 9), -unspent), 0) AS overdraft, closed, currency
FROM (
    SELECT *, granted - spent - reserved AS unspent,
        NOT ({" AND ".join(map(_check_amount, ("granted", "spent", "reserved")))}) AS damaged
    FROM (
        SELECT coalesce(json_extract(record, '$.thread_id'), quoted_thread_id) AS thread_id,
            substr(rest, 1, instr(rest, '/') - 1) AS turn_id,
            substr(rest, instr(rest, '/') + 1) AS grant_id,
            coalesce(json_extract(record, '$.path'), '') AS agent_path, given.at AS at,
            each.key AS unit, each.value AS granted,
            coalesce(json_extract(record, '$.spent.' || each.key), 0) AS spent,
            coalesce(json_extract(record, '$.reserved.' || each.key), 0) AS reserved,
            coalesce(json_extract(record, '$.closed'), 0) AS closed,
            iif(each.key = 'money', coalesce(json_extract(record, '$.currency'), ''), '')
                AS currency
        FROM ({_select_records("grant")}) AS given,
            json_each(iif(whole, record, '{{"granted": {{"damaged": 0}}}}'), '$.granted') AS each
    )
);
"""  # noqa: S608
"""The views of what was used, one row for each call, and of what was granted, one for each unit."""

_USAGE_VIEW = USAGE_VIEWS[: USAGE_VIEWS.index("CREATE VIEW IF NOT EXISTS grants")]
_CHARGES_END = "'') AS checkpoint_id\n"
_CHARGED = (
    "SELECT agent_thread_id, checkpoint_ns, checkpoint_id FROM charges WHERE kind = 'model'\n    )"
)

# Of a graph in a tool or a subordinate, whose models were noted when their calls ended.
_NOTED = """ AND NOT (
        instr('|' || checkpoint_ns, '|act:') + instr('|' || checkpoint_ns, '|run:') > 0
        AND (agent_thread_id, key) IN (
            SELECT agent_thread_id, reply_id FROM charges WHERE reply_id <> ''
        )
    )"""

_CHARGES_WITH_REPLIES = f"""{_CHARGES_END.rstrip()},
        coalesce(json_extract(record, '$.reply_id'), '') AS reply_id
"""

NOTED_CALLS = "DROP VIEW IF EXISTS usage;" + (
    _USAGE_VIEW.replace(_CHARGES_END, _CHARGES_WITH_REPLIES)
    .replace("SELECT id, at, thread_id, agent_thr", "SELECT id, at, key, thread_id, agent_thr")
    .replace(_CHARGED, _CHARGED + _NOTED)
    .replace("('ask_later', ", "('ask', 'ask_later', ")
    .replace("'report', 'send_message',", "'read_result', 'report', 'send_message',")
)
"""The view `usage`, in which a reply that was noted when its call ended counts once."""

# A column of `events` would make SQLite read the whole schema again, for each new database. The
# numbers of deleted rows are used again, so a mark goes with its event.
INHERITED_CALLS = """
CREATE TABLE IF NOT EXISTS inherited_calls (event_id INTEGER PRIMARY KEY);
CREATE TRIGGER IF NOT EXISTS forget_inherited_call AFTER DELETE ON events BEGIN
    DELETE FROM inherited_calls WHERE event_id = OLD.id;
END;
""" + NOTED_CALLS.replace(  # noqa: S608
    "WHERE iif(kind = 'tool',",
    "WHERE id NOT IN (SELECT event_id FROM inherited_calls) AND iif(kind = 'tool',",
).replace(
    "AS reply_id\n",
    "AS reply_id,\n        coalesce(json_extract(record, '$.inherited'), 0) AS inherited\n",
).replace(
    "FROM charges WHERE kind <> 'tool' OR",
    "FROM charges WHERE NOT inherited AND (kind <> 'tool' OR",
).replace("('lost', 'damaged');", "('lost', 'damaged'));")
"""The calls that a copied thread got with its copy, which the view `usage` leaves out."""


# Databases from before the steps were counted have all of step 1, so it must be idempotent.
MIGRATION_STEPS = (
    EVENTS_SCHEMA,
    LEDGER,
    SEALS_SCHEMA,
    # The journal has had its keys of today since the view was made: later databases know their
    # open calls.
    DELEGATIONS_VIEW + OPEN_CALLS,
    CIRCUITS_BY_PATH,
    CALLS_BY_POSITION,
    RESULTS_IN_CONTENT,
    USER_ACTIONS_VIEW,
    AGENTS_VIEW,
    AGENTS_VIEW_WITH_KINDS,
    USAGE_VIEWS,
    NOTED_CALLS,
    DELEGATIONS_WITH_ENDS,
    INHERITED_CALLS,
)

# Not `PRAGMA user_version`: an app may use that number for its own tables in the same file.
_STEPS_TABLE = (
    "CREATE TABLE IF NOT EXISTS echelons_schema (step INTEGER PRIMARY KEY, at TEXT NOT NULL)"
)


def refuse_newer(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database that a newer version of Echelons has migrated.

    Raises:
        StorageError: It has steps that this version does not know.
    """
    taken = _count_steps_taken(connection)
    if taken > len(MIGRATION_STEPS):
        raise StorageError(
            path,
            f"its schema is at step {taken}, and this version knows up to {len(MIGRATION_STEPS)}",
            "database {path!r} is of a newer version of Echelons: {why}; update Echelons, or name "
            "another database. Nothing was changed",
            code="database_too_new",
            found=taken,
            known=len(MIGRATION_STEPS),
        )


def migrate(connection: sqlite3.Connection, path: str, clock: Clock) -> None:
    """Take the missing steps of a database, all of them or none.

    Safe in several processes at once: one takes the steps while the others wait.
    """
    refuse_newer(connection, path)
    if _count_steps_taken(connection) == len(MIGRATION_STEPS):
        return
    connection.create_function("build_key", -1, build_key, deterministic=True)
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        connection.execute(_STEPS_TABLE)
        # Read again: another process may have taken some while this one waited.
        refuse_newer(connection, path)
        taken = _count_steps_taken(connection)
        for number, script in enumerate(MIGRATION_STEPS[taken:], start=taken + 1):
            # Not `executescript`, which commits first.
            for statement in _split_statements(script):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO echelons_schema VALUES (?, ?)", (number, clock().isoformat())
            )


@cache
def _split_statements(script: str) -> tuple[str, ...]:
    statements, statement = list[str](), ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            statements.append(statement)
            statement = ""
    return tuple(statements)


def _count_steps_taken(connection: sqlite3.Connection) -> int:
    counted = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'echelons_schema'")
    if counted.fetchone() is None:
        return 0
    (taken,) = connection.execute("SELECT coalesce(max(step), 0) FROM echelons_schema").fetchone()
    return int(taken)
