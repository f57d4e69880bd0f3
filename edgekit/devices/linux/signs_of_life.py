"""Signs of life that a host sends to the device it uses.

A network that vanishes closes nothing: the SSH server on the device may keep its sessions for
hours. So the host sends an empty line now and then to each command that holds something on the
device, and such a command ends when none has come for SECONDS_WITHOUT_HOST.
"""

from __future__ import annotations

SECONDS_WITHOUT_HOST = 30
BEATS_IN_THAT_TIME = 6
BEAT = b"\n"

LISTEN = r"""
# Calls `heard` with each line of the input in $line, and `ended` once: at the end of the input, or
# when no line came for $silence seconds. Shells whose `read` knows no -t (dash) let a timer of
# their own, restarted with every third line, call `ended` and kill $listener. What ends at once
# needs no timer, and must not be killed while its timer starts.
listen() {
  read -t 1 line </dev/null 2>/dev/null
  if [ $? -eq 1 ]; then
    while IFS= read -r -t "$silence" line; do heard; done
    ended
    return
  fi
  [ -n "$listener" ] || sleep 2 </dev/null
  lines=0 timer=
  while :; do
    if [ $((lines % 3)) -eq 0 ]; then
      trap - TERM  # a fork with a trap loses a signal that comes before it has one of its own
      [ -z "$timer" ] || kill "$timer"
      {
        trap 'kill $!; exit' TERM
        sleep "$silence" & wait $!
        kill -0 $$ && ended
        [ -z "$listener" ] || kill -9 "$listener"
      } </dev/null >/dev/null 2>&1 3<&- 9>&- &
      timer=$!
      trap 'kill $!; exit 1' TERM
    fi
    IFS= read -r line || break
    lines=$((lines + 1))
    heard
  done
  kill "$timer" 2>/dev/null
  ended
}
listener=
heard() { :; }
"""
"""Shell functions. They need the variable `silence` and a function `ended`."""

END_STREAMS = r"""
# Ends the commands of this connection whose input is a stream of data, with no room for signs of
# life: their name is stream-$mark.
end_streams() {
  for file in /proc/[0-9]*/cmdline; do
    pid=${file#/proc/} pid=${pid%/cmdline}
    while IFS= read -r words || [ -n "$words" ]; do
      case $words in *"stream-$mark"*) kill -9 -"$pid" || kill -9 "$pid"; break;; esac
    done <"$file"
  done 2>/dev/null
}
"""
"""A shell function that needs the variable `mark`. `agent/src/attend.cc` does the same."""
