-- The tables of a file of recordings. docs/recordings.md describes the columns.
-- A change of the tables needs a new version (SCHEMA_VERSION in recorder.py). A gateway neither reads nor writes files of other versions.
-- Further columns and indexes need none: files get them when they are opened to write, and earlier gateways leave them null.

-- SQLite reads a row from its begin to the last column that is asked for, so a column that lists show stands before long ones.
-- Readers parse the columns with the comment JSON. The columns of calls have the names of fields of the record of a call (Record), or stand in recorder.py.
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY,
    time REAL,
    request_id TEXT,
    endpoint TEXT,
    model TEXT,
    key TEXT,
    policy TEXT,
    template TEXT,
    mode TEXT,
    stream INTEGER,
    outcome TEXT,
    error TEXT,
    status INTEGER,
    duration REAL,
    first_token REAL,
    queue_wait REAL,
    upstream_first REAL,
    upstream REAL,
    client_wait REAL,
    overhead REAL,
    target TEXT,
    attempts INTEGER,
    failed_attempts TEXT,  -- JSON
    cache TEXT,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    usage_source TEXT,
    version TEXT,
    run TEXT,
    row TEXT,
    request_sha256 TEXT,
    template_sha256 TEXT,
    policy_sha256 TEXT,
    dataset_prompt TEXT,
    notices TEXT,  -- JSON
    answers_cut TEXT,  -- JSON
    stop_cuts TEXT,  -- JSON
    target_settings TEXT,
    asked TEXT  -- JSON
);

CREATE TABLE IF NOT EXISTS exchanges (
    id INTEGER PRIMARY KEY,
    call INTEGER,
    time REAL,
    endpoint TEXT,
    answer TEXT,  -- JSON
    prompt_sha256 TEXT,
    prompts TEXT,  -- JSON
    segments TEXT,  -- JSON
    messages TEXT,  -- JSON
    params TEXT,  -- JSON
    seed INTEGER,
    n INTEGER,
    stops TEXT,  -- JSON
    stop_token_ids TEXT,  -- JSON
    bos TEXT,
    bos_text TEXT,
    stream INTEGER,
    repeat INTEGER,
    events TEXT,  -- JSON
    answer_sha256 TEXT,
    redacted INTEGER,
    delivered_sha256 TEXT,
    prompt_ids TEXT,  -- JSON
    prompt_text TEXT
);

CREATE INDEX IF NOT EXISTS calls_by_run ON calls (run, key, row, endpoint, model, template, outcome, answers_cut);
CREATE INDEX IF NOT EXISTS calls_by_row ON calls (row);
CREATE INDEX IF NOT EXISTS calls_by_model ON calls (model, time);
CREATE INDEX IF NOT EXISTS calls_by_key ON calls (key, time);
CREATE INDEX IF NOT EXISTS calls_by_outcome ON calls (outcome, time);
CREATE INDEX IF NOT EXISTS calls_by_request ON calls (request_id);
CREATE INDEX IF NOT EXISTS exchanges_of_call ON exchanges (call);
CREATE INDEX IF NOT EXISTS calls_by_time ON calls (time);
CREATE INDEX IF NOT EXISTS calls_of_run ON calls (run, time);
CREATE INDEX IF NOT EXISTS calls_cut ON calls (time, id, answers_cut) WHERE answers_cut != '[]';
CREATE INDEX IF NOT EXISTS calls_noticed ON calls (time, id, notices) WHERE notices != '[]';
CREATE TRIGGER IF NOT EXISTS exchanges_end AFTER DELETE ON calls
    BEGIN DELETE FROM exchanges WHERE call = old.id; END;
