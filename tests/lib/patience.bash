# shellcheck shell=bash
# Time limits that end programs that hang, and measure nothing. On a busy machine a program that
# works takes many times longer.

# patience SECONDS: prints SECONDS, times the load divided by two threads a processor if the machine
# has more than four a processor to run. The load is the mean of a minute or the threads that run
# now, whichever is higher.
patience() {
    local load running cores
    read -r load _ _ running _ </proc/loadavg || { echo "$1" && return; }
    cores=$(getconf _NPROCESSORS_ONLN)
    load=${load%.*} running=${running%/*}
    [ "$running" -le "$load" ] || load=$running
    echo $(($1 * (load > 4 * cores ? load / (2 * cores) : 1)))
}

# quiet_or BUSY QUIET: prints QUIET, or BUSY if the machine is so busy that patience() gives more
# time. Then a wait of Penstock's may end before another thread has run. The result is right, and
# slower; BUSY says how much slower it may be.
quiet_or() { if [ "$(patience 1)" -gt 1 ]; then echo "$1"; else echo "$2"; fi; }

# within SECONDS COMMAND...: runs the command, and ends it when its time is over, with status 124 or
# 137
within() {
    local seconds
    seconds=$(patience "$1")
    shift
    timeout --kill-after=5 "$seconds" "$@"
}
