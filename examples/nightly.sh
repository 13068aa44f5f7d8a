#!/bin/sh
# A job for cron that never runs twice at once, however many machines have it in their tables.
#
# Run it: `LOCKKIT_URL=file:/tmp/lockkit-example sh examples/nightly.sh`
#
# In a crontab:  0 3 * * *  LOCKKIT_URL=redis://locks.internal /opt/jobs/nightly.sh
# The machine that comes second has nothing to do (75) and says nothing. When the job has lost its lock
# (76), or failed, cron sends the mail that it sends about every other failure.

lockkit run --no-wait --quiet nightly -- sh -c '
  # The token goes along with every write, so that what it writes to can refuse a stale job.
  echo "works under token $LOCKKIT_TOKEN"
  exec sleep "${SECONDS_OF_WORK:-0}"
'
code=$?
[ "$code" -eq 75 ] || exit "$code"
