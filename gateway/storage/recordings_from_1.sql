-- Adds the columns that version 1 of the tables did not have. Their values are null: not recorded.
ALTER TABLE calls ADD COLUMN run TEXT;
ALTER TABLE calls ADD COLUMN row TEXT;
ALTER TABLE calls ADD COLUMN request_sha256 TEXT;
ALTER TABLE calls ADD COLUMN template_sha256 TEXT;
ALTER TABLE calls ADD COLUMN policy_sha256 TEXT;
ALTER TABLE calls ADD COLUMN dataset_prompt TEXT;
ALTER TABLE calls ADD COLUMN notices TEXT;
ALTER TABLE calls ADD COLUMN answers_cut TEXT;
ALTER TABLE calls ADD COLUMN stop_cuts TEXT;
ALTER TABLE calls ADD COLUMN target_settings TEXT;
ALTER TABLE exchanges ADD COLUMN answer TEXT;
ALTER TABLE exchanges ADD COLUMN delivered_sha256 TEXT;
ALTER TABLE exchanges ADD COLUMN prompt_ids TEXT;
