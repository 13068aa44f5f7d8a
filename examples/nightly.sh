#!/bin/sh
# A job for cron that runs once a night, even if several machines have it in their crontab.
#
# Run it: `LOCKKIT_URL=file:/tmp/lockkit-example AT_LEAST=1s sh examples/nightly.sh`
#
# In a crontab:  0 3 * * *  LOCKKIT_URL=redis://locks.internal /opt/jobs/nightly.sh
# The second machine finds the lock held (75), does nothing and prints nothing. When the job loses its lock
# (76) or fails, cron sends a mail as for every other failure.
#
# The lock alone only prevents two jobs at the same time: a machine whose clock is some seconds late would find
# the lock of a short job free and run the job again. So the lock is kept for at least `AT_LEAST`: longer than
# clocks differ, and shorter than the time between two nights.

lockkit run --no-wait --quiet --at-least "${AT_LEAST:-50s}" nightly -- sh -c '
  # Send the token with every write, so that the target can refuse a stale job.
  echo "works under token $LOCKKIT_TOKEN"
  exec sleep "${SECONDS_OF_WORK:-0}"
'
code=$?
[ "$code" -eq 75 ] || exit "$code"
