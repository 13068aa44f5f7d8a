#!/bin/sh
# A job for cron that runs once a night, even if several machines have it in their crontab.
#
# Run it: `LOCKKIT_URL=file:/tmp/lockkit-example AT_LEAST=1s sh examples/nightly.sh`
#
# In a crontab:  PATH=/usr/local/bin:/usr/bin:/bin
#                LOCKKIT_URL=redis://locks.internal
#                0 3 * * *  /opt/jobs/nightly.sh
# The PATH of cron is short: it must lead to `lockkit`, as after `cargo install --root /usr/local`. Cron sends what a
# job prints: the second machine finds the lock held, does nothing, prints nothing, and ends with 0.
#
# The lock alone only prevents two jobs at the same time: a machine whose clock is some seconds late would find
# the lock of a short job free and run the job again. So the lock is kept for at least `AT_LEAST`: longer than
# clocks differ, and shorter than the time between two nights.

# `exec`, so that a signal to the script reaches lockkit and, through it, the job.
exec lockkit run --no-wait --quiet -E 0 --at-least "${AT_LEAST:-50s}" nightly -- sh -c '
  # Send the token with every write, so that the target can refuse a stale job.
  echo "works under token $LOCKKIT_TOKEN"
  exec sleep "${SECONDS_OF_WORK:-0}"
'
