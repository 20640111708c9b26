-- What a worker, a receiver, the clock and `fleet submit` need, where another role owns the tables. As the owner:
--   psql "$OWNER" -v role=payer -f grants.sql
-- Make the tables first, as the owner too (see README.md); after an upgrade, run it again.
GRANT USAGE ON SCHEMA payments TO :"role";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA payments TO :"role";
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA payments TO :"role";
-- an application that only puts orders within its own transactions needs less: USAGE on the schema, and EXECUTE on
-- payments.lay and payments.mark_told
