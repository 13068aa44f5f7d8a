-- Whether the session that a hold `f` ends with is gone: nobody has its advisory lock. A server that was
-- started since, or that took over, knows nothing of the session: there only the lease counts.
-- {grace}: a lease that is shorter than this is not made shorter.
CASE WHEN f.session <> 0 AND f.expires_at > {now} + {grace}
          AND f.session >> 32 = {server}
     THEN pg_try_advisory_xact_lock_shared(f.session) ELSE false END
