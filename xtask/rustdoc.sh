#!/bin/sh
# rustdoc with what is not stable yet: its JSON output.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@"
