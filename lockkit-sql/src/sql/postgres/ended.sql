-- What became of a transaction that somebody asked to commit, and whose answer was lost.
-- {transaction}. Answers `committed`, `aborted` or `in progress`; null if it was long ago.
SELECT txid_status({transaction});
