# shellcheck shell=bash
# Time limits that end what hangs, and measure nothing: beside many busy neighbours a program that is well takes as many times longer.

# patience SECONDS: prints these seconds, or as many times more as this machine has more to run than its processors can run at once, two a processor.
patience() {
    local load running cores
    read -r load _ _ running _ </proc/loadavg || { echo "$1" && return; }
    cores=$(getconf _NPROCESSORS_ONLN)
    load=${load%.*} running=${running%/*}
    [ "$running" -le "$load" ] || load=$running
    echo $(($1 * (load > 4 * cores ? load / (2 * cores) : 1)))
}

# within SECONDS COMMAND...: ends the command when its time is over, with status 124 or 137
within() {
    local seconds
    seconds=$(patience "$1")
    shift
    timeout --kill-after=5 "$seconds" "$@"
}
