-- Whether the session of a hold `f` has ended: no session has its advisory lock. A server that was started
-- since, or that took over, does not know the session: there only the lease counts.
-- grace: no lease is made shorter than this.
CASE WHEN f.session <> 0 AND f.expires_at > {now} + {grace}
          AND f.session >> 32 = {server}
     THEN pg_try_advisory_xact_lock_shared(f.session) ELSE false END
