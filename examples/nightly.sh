#!/bin/sh
# A job for cron that runs once a night, however many machines have it in their tables.
#
# Run it: `LOCKKIT_URL=file:/tmp/lockkit-example AT_LEAST=1s sh examples/nightly.sh`
#
# In a crontab:  0 3 * * *  LOCKKIT_URL=redis://locks.internal /opt/jobs/nightly.sh
# The machine that comes second has nothing to do (75) and says nothing. When the job has lost its lock
# (76), or failed, cron sends the mail that it sends about every other failure.
#
# The lock alone only keeps two from running at once: where the clock of one machine is some seconds late and
# the job takes less, it would find the lock free and run the job again. So the lock is kept for at least
# `AT_LEAST`: longer than clocks differ, and shorter than the pause between two nights.

lockkit run --no-wait --quiet --at-least "${AT_LEAST:-50s}" nightly -- sh -c '
  # The token goes along with every write, so that what it writes to can refuse a stale job.
  echo "works under token $LOCKKIT_TOKEN"
  exec sleep "${SECONDS_OF_WORK:-0}"
'
code=$?
[ "$code" -eq 75 ] || exit "$code"
